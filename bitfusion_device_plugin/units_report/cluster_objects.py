"""Nodes, pods and quotas as far as they concern the pool, from raw Kubernetes objects of any shape. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bitfusion_client.kubernetes.lost_node import not_ready_since
from bitfusion_client.kubernetes.names import (
    GROUP,
    QUEUE_CONDITION,
    QUEUE_GATE,
    QUOTA_UNITS,
    RESOURCE_UNITS,
)
from bitfusion_client.kubernetes.pod_units import unit_count, units_of
from bitfusion_client.kubernetes.quota_keys import looks_like_a_quota_key, wrong_quota_keys
from bitfusion_client.kubernetes.raw_objects import (
    is_being_deleted,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    text,
)
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.pod_contract import LABEL_NOTEBOOK

QUEUE_ACCOUNT = "bitfusion-queue"
"""The ServiceAccount of the program that lifts gates."""

RUNS, STARTS, ENDS = "runs", "starts", "ends"
LOST = "node not ready"  # whether it runs nobody knows
KEPT = "gets its units"  # the queue keeps them for it, and lifts its gate next
GATED, OTHER_GATE, UNPLACED = "waits at its gate", "waits at another gate", "waits for a node"
FINISHED_PHASES = ("Succeeded", "Failed")

READ = frozenset(
    (
        *("kind", "items", "metadata", "spec", "status", "name", "namespace", "labels", LABEL_NOTEBOOK),
        *("deletionTimestamp", "phase", "conditions", "type", "reason", "message", "nodeName"),
        "lastTransitionTime",
        *("serviceAccountName", "schedulingGates", "containers", "initContainers", "restartPolicy"),
        *("resources", "limits", "requests", "overhead", RESOURCE_UNITS, "allocatable", "nodeInfo"),
        *("kubeletVersion", "hard", "used", "scopes", "scopeSelector", "matchExpressions"),
    )
)
"""The keys that are looked at, here and in `pod_units`, wherever they stand. And those of a quota."""

_LONGEST_NAME = 253
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        name: Its name.
        units: That it offers; 0 while it is not ready, as it says what it said last.
        kubelet: The version of its kubelet, ``v1.34.4``.
        not_ready_since: As its condition has it; None: it is ready.
    """

    name: str
    units: int
    kubelet: str
    not_ready_since: str | None = None


@dataclass(frozen=True, slots=True)
class AskingPod:
    """A pod with units that has not finished.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        notebook: The Notebook that it belongs to; empty for other pods.
        units: What it counts.
        state: `RUNS`, `STARTS`, `ENDS`, `LOST`, `KEPT`, `GATED`, `OTHER_GATE` or `UNPLACED`.
        node: Where it is; empty while it has no node.
        why: Why it waits, in the queue's or the scheduler's words; empty where nobody says.
        was_gated: Whether it has the queue's gate, or the queue has lifted it.
    """

    namespace: str
    name: str
    notebook: str
    units: int
    state: str
    node: str = ""
    why: str = ""
    was_gated: bool = True

    @property
    def counts(self) -> bool:
        """Whether its units are taken: from the moment they are kept for it to its end."""
        return self.state not in (GATED, OTHER_GATE)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota that counts units, or seems to.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        used: Units that are used.
        hard: Units that are allowed; None: it does not count them.
        scoped: It counts some pods of the namespace only.
        wrong_keys: By which it limits nothing, although they name Bitfusion's resources; the first few.
    """

    namespace: str
    name: str
    used: int
    hard: int | None
    scoped: bool = False
    wrong_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """What concerns the pool, sorted by name.

    Attributes:
        nodes: All nodes.
        pods: The pods that count units, or will.
        quotas: The quotas on units.
        queues: The queue's ready pods, ``NAMESPACE/NAME``.
        only_namespace: The namespace of all pods that there are, whatever they ask for; empty where there
            are several: every cluster has pods of its own, so that one alone was asked for.
    """

    nodes: tuple[Node, ...]
    pods: tuple[AskingPod, ...]
    quotas: tuple[Quota, ...]
    queues: tuple[str, ...] = ()
    only_namespace: str = ""


def cluster_objects(items: Iterable[object]) -> ClusterObjects:
    """The objects of a list as `kubectl get … -o json` prints it; other kinds are skipped."""
    nodes, pods, quotas, queues = [], [], [], []
    namespaces = set()
    for item in items:
        raw = mapping(item)
        kind = raw.get("kind")
        if kind == "Node":
            nodes.append(_node(raw))
        elif kind == "ResourceQuota":
            quota = _quota(raw)
            if quota is not None:
                quotas.append(quota)
        elif kind == "Pod":
            namespaces.add(_name(raw, "namespace"))
            pod = asking_pod(raw)
            if pod is not None:
                pods.append(pod)
            elif _is_ready_queue(raw):
                queues.append(f"{_name(raw, 'namespace')}/{_name(raw, 'name')}")
    lost = {node.name for node in nodes if node.not_ready_since is not None}
    pods = [replace(pod, state=LOST) if pod.node in lost else pod for pod in pods]
    return ClusterObjects(
        tuple(sorted(nodes, key=lambda node: node.name)),
        tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.notebook or pod.name, pod.name))),
        tuple(sorted(quotas, key=lambda quota: (quota.namespace, quota.name))),
        tuple(sorted(queues)),
        namespaces.pop() if len(namespaces) == 1 else "",
    )


def only_what_is_read(raw: dict[str, Any]) -> dict[str, Any]:
    """A JSON object without the keys that nobody looks at, for a parser that calls it for each.

    Of a pod that leaves a fifth: environments, volumes and annotations of thousands of them would take more
    memory than the pool's pod has.
    """
    return {key: value for key, value in raw.items() if key in READ or _may_count_units(key)}


def _may_count_units(key: str) -> bool:
    return GROUP in key and looks_like_a_quota_key(key)  # the first is quick


def asking_pod(raw: Mapping[str, Any]) -> AskingPod | None:
    """A raw pod of any shape; None if it counts no units: it has finished, or is deleted and gets no node."""
    units = units_of(raw)
    status = mapping(raw.get("status"))
    if not units or status.get("phase") in FINISHED_PHASES:
        return None
    spec = mapping(raw.get("spec"))
    node = one_line(text(spec.get("nodeName")), _LONGEST_NAME)
    if not node and is_being_deleted(raw):
        return None
    gates = [text(gate.get("name")) for gate in mappings(spec.get("schedulingGates"))]
    conditions = {text(one.get("type")): one for one in mappings(status.get("conditions"))}
    state, why = _state(raw, node, gates, conditions)
    return AskingPod(
        _name(raw, "namespace"),
        _name(raw, "name"),
        one_line(text(labels_of(raw).get(LABEL_NOTEBOOK)), _LONGEST_NAME),
        units,
        state,
        node,
        one_line(why, _LONGEST_REASON),
        QUEUE_GATE in gates or _are_kept(conditions),
    )


def _state(
    raw: Mapping[str, Any], node: str, gates: list[str], conditions: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
    if node:
        if is_being_deleted(raw):
            return ENDS, ""
        return (RUNS if mapping(raw.get("status")).get("phase") == "Running" else STARTS), ""
    if QUEUE_GATE in gates and _are_kept(conditions):
        return KEPT, ""
    if QUEUE_GATE in gates:
        condition = conditions.get(QUEUE_CONDITION, {})
        return GATED, text(condition.get("message")) or text(condition.get("reason"))
    if gates:
        return OTHER_GATE, ", ".join(gates)
    scheduled = conditions.get("PodScheduled", {})
    return UNPLACED, text(scheduled.get("message")) if scheduled.get("status") == "False" else ""


def _are_kept(conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the queue says that the pod's units are kept for it (docs/decisions, 0100)."""
    return conditions.get(QUEUE_CONDITION, {}).get("status") == "True"


def _node(raw: Mapping[str, Any]) -> Node:
    status, since = mapping(raw.get("status")), not_ready_since(raw)
    units = 0 if since is not None else unit_count(mapping(status.get("allocatable")).get(RESOURCE_UNITS))
    kubelet = one_line(text(mapping(status.get("nodeInfo")).get("kubeletVersion")), _LONGEST_NAME)
    return Node(_name(raw, "name"), units, kubelet, since)


def _quota(raw: Mapping[str, Any]) -> Quota | None:
    spec, status = mapping(raw.get("spec")), mapping(raw.get("status"))
    hard = mapping(spec.get("hard"))
    wrong = wrong_quota_keys(hard)
    if QUOTA_UNITS not in hard and not wrong:
        return None
    return Quota(
        _name(raw, "namespace"),
        _name(raw, "name"),
        unit_count(mapping(status.get("used")).get(QUOTA_UNITS)),
        unit_count(hard[QUOTA_UNITS]) if QUOTA_UNITS in hard else None,
        bool(spec.get("scopes") or spec.get("scopeSelector")),
        wrong,
    )


def _is_ready_queue(raw: Mapping[str, Any]) -> bool:
    if mapping(raw.get("spec")).get("serviceAccountName") != QUEUE_ACCOUNT or is_being_deleted(raw):
        return False
    conditions = mappings(mapping(raw.get("status")).get("conditions"))
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _name(raw: Mapping[str, Any], field: str) -> str:
    return one_line(text(metadata_of(raw).get(field)), _LONGEST_NAME)
