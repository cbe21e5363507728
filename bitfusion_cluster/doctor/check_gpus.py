"""The engine, and what it computes by: GPUs of nodes, or units of a pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bitfusion_client.gpu_pods.size_rules import SizeRule
from bitfusion_client.kubernetes.label_selectors import selects
from bitfusion_client.kubernetes.names import RESOURCE_UNITS
from bitfusion_client.kubernetes.raw_objects import labels_of, mapping, mappings, metadata_of, text
from bitfusion_cluster.api.paths import NODES
from bitfusion_cluster.doctor.engine import MEANINGS, Engine, engine_of
from bitfusion_cluster.doctor.finding import Finding, counted, fail, named, ok, warn
from bitfusion_cluster.doctor.seen import Seen

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

CARDS = {
    "nvidia.com/gpu.present": ("true",),
    "feature.node.kubernetes.io/pci-10de.present": ("true",),
    "feature.node.kubernetes.io/pci-0302_10de.present": ("true",),
}
"""Labels by which NVIDIA's operator and Node Feature Discovery say that a node has a card."""
BLOCKING = ("NoSchedule", "NoExecute")
PLUGIN = "install the vendor's device plugin (for NVIDIA: the GPU Operator) and check that its pods run there"


def check_engine(seen: Seen) -> Iterator[Finding]:
    """Which engine it is."""
    engine = engine_of(seen)
    if engine.wrong:
        todo = "correct it in your installation and apply it again; it is read within two minutes"
        yield fail("engine", engine.wrong, todo)
    if engine.kinds:
        yield ok("engine", "; ".join(f"{kind}: {MEANINGS[kind]}" for kind in engine.kinds))


def check_gpus(seen: Seen) -> Iterator[Finding]:
    """Whether anything can be computed by."""
    engine = engine_of(seen)
    nodes = seen.items(NODES)
    if engine.has_pods:
        yield from _gpus(engine, nodes)
    if engine.has_pool:
        yield _units(nodes)


def _gpus(engine: Engine, nodes: list[RawObject]) -> Iterator[Finding]:
    if not engine.resources:
        if engine.rules:  # otherwise the engine's own check says why there are none
            yield ok("GPUs", "requested by claims or annotations, which nodes do not count")
        return
    for resource in engine.resources:
        having = [node for node in nodes if _amount(node, resource)]
        total = sum(_amount(node, resource) for node in having)
        if not having:
            yield fail("GPUs", f"no node offers {resource}: every first cell would wait forever", PLUGIN)
            continue
        rules = [rule for rule in engine.rules if resource in rule.resources]
        fit = [node for node in having if any(not _in_the_way(rule, node) for rule in rules)]
        if fit:
            free = "" if len(fit) == len(having) else f"; {len(fit)} of them take GPU pods"
            yield ok("GPUs", f"{total} {resource} on {counted(len(having), 'node')}{free}")
        left_out: dict[str, list[str]] = {}
        for node in having:
            reasons = [_in_the_way(rule, node) for rule in rules]
            if "" not in reasons and not (_is_away(node) and fit):
                left_out.setdefault(reasons[0], []).append(_name(node))
        for reason, names in left_out.items():
            words = f"nodes {named(names)} take" if len(names) > 1 else f"node {named(names)} takes"
            yield (warn if fit else fail)("GPUs", f"{words} no GPU pod: {reason}", _cure(reason))
    bare = [
        _name(node)
        for node in nodes
        if _has_card(node) and not any(_amount(node, each) for each in engine.resources)
    ]
    if bare:
        wanted = " or ".join(engine.resources)
        many = "have cards and offer" if len(bare) > 1 else "has a card and offers"
        yield warn(
            "GPUs", f"{named(bare)} {many} no {wanted}: driver or device plugin is missing there", PLUGIN
        )


def _units(nodes: list[RawObject]) -> Finding:
    having = [node for node in nodes if _amount(node, RESOURCE_UNITS)]
    if not having:
        return fail(
            "pool",
            f"no node offers {RESOURCE_UNITS}: pods that ask for GPUs of the pool are never scheduled",
            "apply manifests/device-plugin/kubeflow; where it runs, the pool does not answer it: look at "
            "kubectl -n bitfusion-device-plugin logs daemonset/bitfusion-device-plugin --tail=20",
        )
    units = max(_amount(node, RESOURCE_UNITS) for node in having)
    return ok(
        "pool",
        f"{units} units, {units / 100:g} GPUs, offered on {counted(len(having), 'node')} of {len(nodes)}",
    )


def _in_the_way(rule: SizeRule, node: RawObject) -> str:
    """Why a node takes no pod of a rule; empty: it takes it."""
    if _is_away(node):
        return "it is not ready, or cordoned"
    spec: Mapping[str, Any] = mapping(rule.pod.get("spec"))
    wanted = {key: value for key, value in mapping(spec.get("nodeSelector")).items() if "{" not in str(value)}
    if not selects({"matchLabels": wanted}, labels_of(node)):
        label = next(f"{key}={value}" for key, value in wanted.items() if labels_of(node).get(key) != value)
        return f"it has no label {label}, which rule {rule.name} requires"
    for taint in mappings(mapping(node.get("spec")).get("taints")):
        if taint.get("effect") in BLOCKING and not any(
            _tolerates(each, taint) for each in mappings(spec.get("tolerations"))
        ):
            return (
                f"its taint {text(taint.get('key'))}:{taint['effect']} is not tolerated by rule {rule.name}"
            )
    return ""


def _cure(reason: str) -> str:
    if reason.startswith("its taint"):
        return "add the toleration to the rule's pod.spec.tolerations in pods.yaml"
    if reason.startswith("it has no label"):
        return "label the node, or change the rule's pod.spec.nodeSelector in pods.yaml"
    return "kubectl describe node says why; kubectl uncordon lets pods in again"


def _tolerates(toleration: RawObject, taint: RawObject) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (
        taint.get("value") or ""
    )


def _is_away(node: RawObject) -> bool:
    if mapping(node.get("spec")).get("unschedulable") is True:
        return True
    conditions = mappings(mapping(node.get("status")).get("conditions"))
    return any(each.get("type") == "Ready" and each.get("status") != "True" for each in conditions)


def _has_card(node: RawObject) -> bool:
    return any(labels_of(node).get(label) in values for label, values in CARDS.items())


def _amount(node: RawObject, resource: str) -> int:
    amount = text(mapping(mapping(node.get("status")).get("allocatable")).get(resource))
    return int(amount) if amount.isascii() and amount.isdigit() else 0


def _name(node: RawObject) -> str:
    return text(metadata_of(node).get("name"))
