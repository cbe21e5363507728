"""Why a pod that ran does not run any more, from the last that was seen of it: a sentence, a cure. Pure.

Who writes what (kubernetes 1.34, below pkg): kubelet/eviction/helpers.go and eviction_manager.go (Evicted),
kubelet/active_deadline.go, kubelet/preemption/preemption.go, kubelet/nodeshutdown,
scheduler/framework/preemption, registry/core/pod/storage/eviction.go, controller/podgc,
controller/tainteviction, controller/util/node (NodeLost). Kueue v0.17, ``Stop`` in
pkg/controller/jobs/pod/pod_controller.go: it sets the condition ``TerminationTarget`` with a reason such as
``WorkloadEvictedDueToPreempted`` and the eviction's message, and then deletes the pod. Scheduler and kubelet
write a pod's conditions as they had seen them, and so may take that one away again: `remembering`.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.raw_objects import containers_of, limits_of, mapping, mappings, metadata_of
from bitfusion_client.pod.pod_contract import PROGRAM_CONTAINER
from bitfusion_pods.places.statuses import (
    NEVER_RAN,
    condition_of,
    exit_code_of,
    is_going,
    is_refused,
    message_of,
    name_of,
    node_of,
    phase_of,
    program_of,
    reason_of,
    seconds,
    state_of,
    status_of,
    words,
)

if TYPE_CHECKING:
    from typing import Any

    from bitfusion_client.kubernetes.raw_objects import RawObject

    Told = tuple[str, str, str]

OUT_OF_MEMORY = "out of memory"
EVICTED = "evicted"
PREEMPTED = "preempted"
NODE_LOST = "node lost"
DEADLINE = "deadline"
DELETED = "deleted"
ENDED = "ended"
UNKNOWN = "unknown"
"""Reasons of a Death."""

TARGETS = ("TerminationTarget", "DisruptionTarget")
"""Conditions of a pod that somebody ends: Kueue, or Kubernetes itself."""

LOST_AFTER = 30.0
"""Seconds after the end of its grace for which a pod may stay, before its node counts as lost."""

_NO_PYTHON, _SAID = 127, "Error: "
"""How the start script of a GPU pod ends that finds no Python, and begins to say so: `agent/bitfusion`."""

_AGAIN = "run the cells again from the first one: a new pod is made for them."
_ASK = "ask your administrator"


@dataclass(frozen=True, slots=True)
class Death:
    """Why a pod is gone, or going.

    Attributes:
        reason: One of this module's reasons.
        words: One sentence.
        next_step: What to do.
        exit_status: Of the program, as a shell counts; None: nobody saw it.
    """

    reason: str
    words: str
    next_step: str = ""
    exit_status: int | None = None


def remembering(pod: dict[str, Any], before: object) -> dict[str, Any]:
    """The pod with the conditions that say who ends it, which an earlier version of it had.

    Args:
        pod: As it is now; empty if it is gone.
        before: As it was seen before, of any shape.
    """
    earlier = mapping(before)
    if not pod or metadata_of(earlier).get("uid") != metadata_of(pod).get("uid"):
        return pod
    forgotten = [
        condition
        for condition in (condition_of(earlier, kind) for kind in TARGETS)
        if condition.get("status") == "True" and not condition_of(pod, str(condition["type"]))
    ]
    if not forgotten:
        return pod
    status = status_of(pod)
    return {**pod, "status": {**status, "conditions": [*forgotten, *mappings(status.get("conditions"))]}}


def death_of(pod: object, now: float, gone: bool = False) -> Death | None:
    """Why the pod has ended or is ending; None if it has not and is not.

    Args:
        pod: As it was seen last, of any shape.
        now: Seconds since the epoch.
        gone: It is not in the cluster any more.
    """
    raw = mapping(pod)
    status, code = status_of(raw), exit_code_of(raw)
    told = (
        _by_status(raw, reason_of(status), message_of(status))
        or _by_queue(condition_of(raw, "TerminationTarget"))
        or _by_disruption(raw, condition_of(raw, "DisruptionTarget"), now)
        or _by_program(raw)
        or _by_deletion(raw, now, gone)
    )
    return None if told is None else Death(told[0], words(told[1]), told[2], code)


def held_by_lost_node(pod: object, now: float) -> bool:
    """Whether its GPU stays taken by a node that does not answer: it is deleted, and nobody ends it there."""
    raw = mapping(pod)
    since = seconds(metadata_of(raw).get("deletionTimestamp"))  # the end of its grace
    over = since is not None and now - since > LOST_AFTER
    return over and bool(node_of(raw)) and phase_of(raw) not in ("Succeeded", "Failed")


# -- who says it, from the surest to the least -------------------------------------------------------------


def _by_status(pod: RawObject, reason: str, message: str) -> Told | None:
    node = node_of(pod) or "its node"
    if reason == "Evicted":
        return EVICTED, f"the pod was evicted from {node}: {_evicted_for(message)}", _eviction_cure(message)
    if reason == "DeadlineExceeded":
        limit = mapping(pod.get("spec")).get("activeDeadlineSeconds")
        bound = f" ({limit} s)" if type(limit) is int and 0 < limit < 10**9 else ""
        said = f"the pod was ended because it reached the longest run time of a GPU pod{bound}"
        return DEADLINE, said, f"{_AGAIN[:-1]}; {_ASK} for a longer time."
    if reason == "NodeLost":
        return _lost(node)
    if reason == "Terminated" and "shutdown" in message:
        return NODE_LOST, f"{node} was shut down", _AGAIN
    if is_refused(pod):  # it ran, and the kubelet's restart forgot it (kubernetes/kubernetes#117955)
        return EVICTED, f"{node} did not accept the pod again after its kubelet restarted: {reason}", _AGAIN
    if reason == "Preempting":
        return PREEMPTED, f"{node} needed the space for a system pod", _AGAIN
    return None


def _by_queue(condition: RawObject) -> Told | None:
    if condition.get("status") != "True":
        return None
    reason, message = reason_of(condition), message_of(condition)
    if reason.endswith("Preempted"):
        why = message.partition(" due to ")[2].partition(";")[0]
        because = f" ({why})" if why and why != "UNKNOWN" else ""
        return (
            PREEMPTED,
            f"Kueue gave the GPU to others, who have priority{because}",
            f"{_AGAIN} It joins the queue again.",
        )
    if reason.endswith("PodsReadyTimeout"):
        said = "Kueue ended the pod because it took too long to start (waitForPodsReady)"
        return (
            PREEMPTED,
            said,
            f"{_ASK} for a longer timeout in Kueue's configuration, or for images on the GPU nodes.",
        )
    if reason.endswith("QueueStopped"):
        return PREEMPTED, f"the queue was stopped: {message}", f"{_ASK} when it is open again."
    if reason == "WorkloadDeleted":
        return DELETED, "somebody deleted the pod's Workload in Kueue", _AGAIN
    return PREEMPTED, f"Kueue ended the pod: {message or reason}", _AGAIN


def _by_disruption(pod: RawObject, condition: RawObject, now: float) -> Told | None:
    if condition.get("status") != "True":
        return None
    reason, message = reason_of(condition), message_of(condition)
    node = node_of(pod) or "its node"
    if reason == "PreemptionByScheduler":
        said = f"a pod of higher priority took the space on {node}"
        return PREEMPTED, said, f"{_AGAIN} Ask your administrator if you need a higher priority."
    if reason == "EvictionByEvictionAPI":
        return (
            EVICTED,
            f"the pod was evicted from {node}, for example because the node is drained for maintenance",
            _AGAIN,
        )
    if reason == "DeletionByTaintManager":
        return _lost(node, " or got a taint that excludes this pod")
    if reason == "DeletionByDeviceTaintManager":
        return EVICTED, f"the GPU of {node} was taken out of service", _AGAIN
    if reason == "DeletionByPodGC":
        return _lost(node, " and was removed from the cluster")
    if "low on resource" in message:
        return EVICTED, f"the pod was evicted from {node}: {_evicted_for(message)}", _eviction_cure(message)
    if reason == "TerminationByKubelet":
        return EVICTED, f"{node} ended the pod: {message or 'no reason given'}", _AGAIN
    return EVICTED, f"the pod was ended: {message or reason or 'no reason given'}", _AGAIN


def _by_program(pod: RawObject) -> Told | None:
    ended = state_of(program_of(pod), "terminated")
    phase = phase_of(pod)
    if ended is None:
        if phase in ("Succeeded", "Failed"):
            reason = reason_of(status_of(pod)) or message_of(status_of(pod))
            return UNKNOWN, f"the pod has ended: {reason or 'no reason given'}", _AGAIN
        return None
    reason, code = reason_of(ended), exit_code_of(pod)
    if reason == "OOMKilled":
        limit = _memory_limit(pod)
        said = f"the pod ran out of memory{f' (its limit is {limit})' if limit else ''}"
        return OUT_OF_MEMORY, said, f"use smaller batches or less data, or {_ask_memory()}"
    if reason in NEVER_RAN:
        return UNKNOWN, f"the program never ran: {message_of(ended) or reason}", _AGAIN
    if code is None:
        return UNKNOWN, f"the program has ended: {reason or 'no reason given'}", _AGAIN
    if code == _NO_PYTHON and message_of(ended).startswith(_SAID):
        said, _, cure = message_of(ended).removeprefix(_SAID).partition(". What to do: ")
        return UNKNOWN, said, words(f"{cure}.")
    if code == 137:
        said = "the program was killed (SIGKILL), by somebody or because memory ran out"
        return ENDED, said, _AGAIN
    if code > 128:
        return ENDED, f"the program was ended by signal {code - 128}", _AGAIN
    return ENDED, "the program has ended" if code == 0 else f"the program has ended with status {code}", ""


def _by_deletion(pod: RawObject, now: float, gone: bool) -> Told | None:
    if held_by_lost_node(pod, now) and not gone:
        return _lost(node_of(pod))
    if is_going(pod) or gone:
        said = "somebody deleted the pod, or the notebook's pod that owns it"
        return DELETED, said, _AGAIN
    return None


# -- words -------------------------------------------------------------------------------------------------


def _lost(node: str, more: str = "") -> Told:
    return (
        NODE_LOST,
        f"{node} no longer answers{more}",
        f"{_AGAIN} A GPU of a lost node returns when the node does.",
    )


def _evicted_for(message: str) -> str:
    """``The node was low on resource: memory. Threshold quantity: …`` in plain words."""
    low = message.partition("low on resource: ")[2].partition(". ")[0].rstrip(".")
    if low:
        return f"the node ran short of {low.replace('ephemeral-storage', 'disk')}"
    if "local ephemeral storage" in message or "ephemeral local storage" in message:
        return "it wrote more to the node's disk than allowed"
    if "Usage of EmptyDir volume" in message:
        return f"its volume {message.partition('volume ')[2].partition(' ')[0]} is full"
    return message or "no reason given"


def _eviction_cure(message: str) -> str:
    if "resource: memory" in message:
        return f"{_AGAIN[:-1]}; use less memory, or {_ask_memory()}"
    if "storage" in message or "EmptyDir" in message:
        return f"{_AGAIN[:-1]}; write large files to the notebook's volume, not to /tmp."
    return _AGAIN


def _ask_memory() -> str:
    return f"{_ASK} for more memory for each GPU (the settings for GPU pods)."


def _memory_limit(pod: RawObject) -> str:
    for container in containers_of(mapping(pod.get("spec"))):
        if container.get("name") == PROGRAM_CONTAINER:
            return name_of(limits_of(container).get("memory"))
    return ""
