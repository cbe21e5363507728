"""How far a GPU pod has come on its way to running, in one line for the cell. Pure.

**Only "no GPU free" waits.** A wrong image, a volume that cannot be mounted, a rule that no node can fulfil
are errors at once, or after some seconds where Kubernetes itself tries again and often succeeds: `Patience`.

Reasons and messages as kubernetes 1.34 writes them: pkg/kubelet/events/event.go, pkg/kubelet/images/types.go
and image_manager.go, pkg/kubelet/kuberuntime/kuberuntime_container.go, pkg/kubelet/lifecycle/predicate.go and
cm/admission/errors.go (a pod that the kubelet refuses), pkg/volume/util/operationexecutor and
pkg/controller/volume/attachdetach/reconciler (volumes). Nodes that are added: TriggeredScaleUp and
NotTriggerScaleUp of the cluster autoscaler, Nominated of Karpenter (pkg/events).
"""

from __future__ import annotations

from bitfusion_client.clock_time import elapsed_text
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_client.pod.pod_contract import PROGRAM_CONTAINER
from bitfusion_pods.places import kueue, starting
from bitfusion_pods.places.deaths import TARGETS, death_of
from bitfusion_pods.places.events import events_of
from bitfusion_pods.places.scheduling import no_node
from bitfusion_pods.places.statuses import (
    NEVER_RAN,
    changed_at,
    condition_of,
    containers_of,
    created_at,
    exit_code_of,
    is_going,
    is_miscounted,
    is_refused,
    message_of,
    name_of,
    node_is_silent,
    node_of,
    phase_of,
    program_of,
    reason_of,
    state_of,
    status_of,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_client.kubernetes.raw_objects import RawObject
    from bitfusion_pods.places.events import PodEvent

WAITS, STARTS, RUNS, RETRY, FAILED, ENDED = "waits", "starts", "runs", "retry", "failed", "ended"

UNFIT, UNSEEN = "unfit", "unseen"
"""Reasons of a stage in which no node could ever take the pod, as far as the scheduler tells, and in which no
scheduler tells anything."""

_SCALE_UP = 900.0
"""Seconds for which a node that was asked for may take to come."""
_UNSEEN, _UNSEEN_LONG = 10.0, 60.0
"""Seconds after which it is told that a scheduler, or a kubelet, has not begun; that this is no good sign."""


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds a failure may pass by itself before it is one.

    Attributes:
        mount: Volumes, network, claims of devices, and what else Kubernetes tries again.
        unfit: No node could ever take the pod: so long a node autoscaler may take to say that it adds one (it
            looks every 10 s), and a device plugin that is restarted to report its GPUs again.
        unseen: A scheduler that says nothing: so long one may take to be replaced.
    """

    mount: float = 30.0
    unfit: float = 20.0
    unseen: float = 300.0


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Stage:
    """How far a pod has come.

    Attributes:
        kind: `WAITS`: for a GPU, a queue or a new node, for nothing else; `STARTS`: a node makes it; `RUNS`:
            its program's container does; `RETRY`: its node has refused it, as it frees devices late: delete
            it and make it anew, a bounded number of times; `FAILED`: it cannot start; `ENDED`: it has run,
            or is being deleted.
        words: One line of at most 200 characters.
        next_step: What to do, where it has failed or ended.
        reason: A word for programs: Kubernetes' own reason, `UNFIT`, `UNSEEN`, or that of a Death.
    """

    kind: str
    words: str
    next_step: str = ""
    reason: str = ""


class Stages:
    """Tells the stages of one pod, and remembers since when it has the reason that it has.

    Args:
        gpus: Names of the resources by which the pod asks for GPUs.
        patience: With what may pass by itself.
    """

    def __init__(self, gpus: Sequence[str] = ("nvidia.com/gpu",), patience: Patience = PATIENCE) -> None:
        self._gpus = tuple(gpus)
        self._patience = patience
        self._reason, self._since = "", 0.0

    def of(self, pod: object, events: object, now: float) -> Stage:
        """As `stage`; one that waits does not fail for a moment in which no node reports GPUs."""
        reason = stage(pod, events, now, self._gpus, self._patience, now).reason
        if reason != self._reason:
            self._reason, self._since = reason, now
        return stage(pod, events, now, self._gpus, self._patience, self._since)


def stage(
    pod: object,
    events: object,
    now: float,
    gpus: Sequence[str] = ("nvidia.com/gpu",),
    patience: Patience = PATIENCE,
    since: float | None = None,
) -> Stage:
    """How far the pod has come.

    Args:
        pod: The raw pod, of any shape.
        events: Raw events, of this pod and of others.
        now: Seconds since the epoch.
        gpus: Names of the resources by which the pod asks for GPUs.
        patience: With what may pass by itself.
        since: Since when no node could take it, or no scheduler has looked at it, or it lacks a claim; None:
            since when the cluster says so, whose clock may be another.
    """
    raw = mapping(pod)
    ended = _ended(raw, now)
    if ended is not None:
        return ended
    if state_of(program_of(raw), "running") is not None:
        if not text(
            status_of(raw).get("podIP")
        ):  # two writes of the kubelet, and no address is this machine's
            return Stage(STARTS, "its container is running but has no address yet")
        if node_is_silent(raw):
            return Stage(
                RUNS, words(f"runs, but {node_of(raw) or 'its node'} does not answer"), "", "NodeNotReady"
            )
        return Stage(RUNS, "runs")
    told = events_of(events, text(metadata_of(raw).get("uid")))
    if node_of(raw) or condition_of(raw, "PodScheduled").get("status") == "True":
        return _starting(raw, told, now, patience)
    return _unscheduled(raw, told, now, gpus, patience, since)


# -- ended -------------------------------------------------------------------------------------------------


def _ended(pod: RawObject, now: float) -> Stage | None:
    phase, reason = phase_of(pod), reason_of(status_of(pod))
    if is_refused(pod):
        said = words(f"{node_of(pod) or 'its node'} refused the pod: {_refusal(pod)}")
        if is_miscounted(pod):
            return Stage(RETRY, said, "", reason)
        return Stage(FAILED, said, "give this message to your administrator.", reason)
    program = state_of(program_of(pod), "terminated")
    if not reason and exit_code_of(pod) is None and not is_going(pod) and not _is_driven_out(pod):
        for failure in (_init_failure(pod), _start_failure(program)):
            if failure is not None:
                return failure
    if phase in ("Succeeded", "Failed") or program is not None or is_going(pod):
        death = death_of(pod, now)
        if death is not None:
            return Stage(ENDED, death.words, death.next_step, death.reason)
    return None


def _is_driven_out(pod: RawObject) -> bool:
    """Whether somebody ends it: a container that failed then says nothing of its own."""
    return any(condition_of(pod, kind).get("status") == "True" for kind in TARGETS)


def _refusal(pod: RawObject) -> str:
    reason = reason_of(status_of(pod))
    said = message_of(status_of(pod)).removeprefix("Pod was rejected").lstrip(": ")
    if "devices unavailable" in said or "no healthy devices" in said:
        return "its GPU is not free yet, although the scheduler expected it to be"
    if reason.startswith("OutOf"):
        return f"too little {name_of(reason[5:])} is free, although the scheduler expected enough"
    if reason == "NodeShutdown":
        return "it is shutting down"
    return said or reason


def _init_failure(pod: RawObject) -> Stage | None:
    for status in containers_of(pod, init=True):
        ended = state_of(status, "terminated")
        if ended is None or ended.get("exitCode") == 0:
            continue
        name = name_of(status.get("name"))
        said = message_of(ended) or reason_of(ended) or "no reason given"
        cure = (
            f"ask your administrator: the init container {name}, "
            "which another webhook adds, does not work in GPU pods."
        )
        return Stage(FAILED, words(f"the init container {name} has failed: {said}"), cure, "init")
    return None


def _start_failure(ended: RawObject | None) -> Stage | None:
    if ended is None or reason_of(ended) not in NEVER_RAN:
        return None
    return _failed(starting.cannot_run(message_of(ended) or reason_of(ended)), reason_of(ended))


# -- on a node ---------------------------------------------------------------------------------------------


def _starting(pod: RawObject, events: list[PodEvent], now: float, patience: Patience) -> Stage:
    scheduled = changed_at(condition_of(pod, "PodScheduled")) or created_at(pod)
    for init in (True, False):
        for status in containers_of(pod, init):
            waiting = state_of(status, "waiting")
            if waiting is None:
                continue
            trouble = starting.container_trouble(reason_of(waiting), message_of(waiting), node_of(pod))
            if trouble is not None and not (trouble.passes and _young(scheduled, now, patience.mount)):
                return _failed(trouble, reason_of(waiting))
    event, name = starting.newest(events), text(metadata_of(pod).get("name"))
    trouble = starting.event_trouble(event, node_of(pod), name) if event is not None else None
    if event is not None and trouble is not None:
        since = max(event.since, scheduled or 0.0) or None
        if not (trouble.passes and _young(since, now, patience.mount)):
            return _failed(trouble, event.reason)
        if trouble.meanwhile:
            return Stage(STARTS, words(f"{trouble.meanwhile} ({trouble.words})"), "", event.reason)
    return Stage(STARTS, words(_progress(pod, event, scheduled, now)))


def _progress(pod: RawObject, event: PodEvent | None, scheduled: float | None, now: float) -> str:
    for status in containers_of(pod, init=True):
        if state_of(status, "running") is not None and not status.get("ready"):
            return f"{name_of(status.get('name'))} is preparing the pod"
    if event is not None and event.reason == "Pulling":
        whose = (
            "the image" if event.container in ("", PROGRAM_CONTAINER) else f"the image of {event.container}"
        )
        return f"pulling {whose}, {elapsed_text(now - event.at)}"
    if event is not None and event.reason in ("Pulled", "Created", "Started"):
        return "its container is being created"
    node = node_of(pod) or "its node"
    if event is None and not containers_of(pod) and scheduled is not None and now - scheduled > _UNSEEN:
        return f"{node} has not started it for {elapsed_text(now - scheduled)}"
    if condition_of(pod, "PodReadyToStartContainers").get("status") == "True":
        return "its container is being created"
    return f"on {node}: its volumes are being attached and mounted"


# -- without a node ----------------------------------------------------------------------------------------


def _unscheduled(
    pod: RawObject,
    events: list[PodEvent],
    now: float,
    gpus: Sequence[str],
    patience: Patience,
    since: float | None,
) -> Stage:
    gates = mappings(mapping(pod.get("spec")).get("schedulingGates"))
    if kueue.is_gated(pod):
        return Stage(WAITS, kueue.place_words(None, kueue.queue_of(pod)), "", "SchedulingGated")
    if gates:
        names = ", ".join(name_of(gate.get("name")) for gate in gates[:3])
        return Stage(WAITS, words(f"held back by the scheduling gate {names}"), "", "SchedulingGated")
    condition = condition_of(pod, "PodScheduled")
    if condition.get("status") != "False" or not message_of(condition):
        return _unseen(pod, events, now, patience, since or created_at(pod), "waiting for the scheduler")
    if reason_of(condition) == "SchedulingGated":  # what was said while it had gates
        said = "released by its queue: the scheduler is looking for a node"
        return _unseen(pod, events, now, patience, since, said)
    if reason_of(condition) == "SchedulerError":
        return Stage(
            WAITS, words(f"the scheduler reports a problem: {message_of(condition)}"), "", "SchedulerError"
        )
    found = no_node(message_of(condition), gpus)
    if found.never:
        return Stage(FAILED, found.words, found.next_step, "Unschedulable")
    scaling = _scaling(events, now)
    if scaling:
        return Stage(WAITS, words(f"{scaling} ({found.words})"), "", "TriggeredScaleUp")
    if found.waits:
        return Stage(WAITS, found.words, "", "Unschedulable")
    since = since if since is not None else changed_at(condition) or created_at(pod)
    if _young(since, now, patience.unfit) and not _is_confirmed(events, now):
        return Stage(WAITS, words(f"no node can take it yet: {found.words}"), "", UNFIT)
    return Stage(FAILED, words(f"no node can ever take it: {found.words}"), found.next_step, UNFIT)


def _unseen(
    pod: RawObject, events: list[PodEvent], now: float, patience: Patience, since: float | None, first: str
) -> Stage:
    name = name_of(mapping(pod.get("spec")).get("schedulerName")) or "default-scheduler"
    for event in events:
        if event.reason == starting.NO_CLAIM and not status_of(pod).get("resourceClaimStatuses"):
            return _without_claim(event, now, patience, since)
        if event.source == name:  # one that has looked, and writes no condition
            return Stage(WAITS, first)
    lasts = now - since if since is not None else 0.0
    if lasts <= _UNSEEN:
        return Stage(WAITS, first, "", UNSEEN)
    said = f"the scheduler {name} has not looked at it for {elapsed_text(lasts)}"
    if lasts <= patience.unseen:
        doubt = ": ask your administrator whether it is running" if lasts > _UNSEEN_LONG else ""
        return Stage(WAITS, words(said + doubt), "", UNSEEN)
    cure = (
        f"ask your administrator whether the scheduler {name} runs; the settings for GPU pods may name "
        "another one (schedulerName)."
    )
    return Stage(FAILED, words(said), cure, UNSEEN)


def _without_claim(event: PodEvent, now: float, patience: Patience, since: float | None) -> Stage:
    trouble = starting.claim_trouble(event.message)
    passes = trouble.passes and _young(event.since if since is None else since, now, patience.mount)
    if passes or "exceeded quota" in event.message:  # of GPUs: a claim is nothing else
        return Stage(WAITS, words(trouble.words), "", event.reason)
    return _failed(trouble, event.reason)


def _scaling(events: list[PodEvent], now: float) -> str:
    """That a node is being added for it; empty: nobody says so."""
    for event in events:
        if event.reason == "NotTriggerScaleUp":
            return ""
        if event.reason == "TriggeredScaleUp" or (
            event.reason == "Nominated" and "schedule on" in event.message
        ):
            return (
                f"a new node is being started, {elapsed_text(now - event.since)}"
                if (now - event.at < _SCALE_UP)
                else ""
            )
    return ""


def _is_confirmed(events: list[PodEvent], now: float) -> bool:
    """Whether an autoscaler, too, says that no node it could add would take it."""
    for event in events:
        if event.reason == "NotTriggerScaleUp":
            passing = (
                "max node group size" in event.message
                or "backoff" in event.message
                or "not ready" in event.message
            )
            return not passing and now - event.at < _SCALE_UP
    return False


# --


def _young(since: float | None, now: float, patience: float) -> bool:
    return since is not None and now - since < patience


def _failed(trouble: starting.Trouble, reason: str) -> Stage:
    return Stage(FAILED, words(trouble.words), trouble.next_step, reason)
