"""Why the scheduler cannot find a node: its message, taken apart and told in plain words. Pure.

The form is that of ``FitError.Error()`` (kubernetes 1.34, pkg/scheduler/framework/types.go)::

    0/3 nodes are available: 2 Insufficient nvidia.com/gpu, 1 node(s) had untolerated taint(s). no new claims
    to deallocate, preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling,
    2 No preemption victims found for incoming pod.

Between its halves stand the words of plugins that cannot help, as of DRA's, also in a cluster without claims.
One node may have several reasons. The second half says which nodes could serve the pod if others left: a node
that has too few of something **in all** counts there as "not helpful", as does one that is tainted, closed or
excluded by affinity (pkg/scheduler/framework/preemption/preemption.go; noderesources/fit.go,
`Unresolvable`). Where the whole cluster is "not helpful", waiting is of no use, unless a node is added.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import one_line
from bitfusion_pods.places.statuses import LONGEST_READ, words

if TYPE_CHECKING:
    from collections.abc import Sequence

_AVAILABLE = " nodes are available:"
_PREEMPTION = " preemption: "
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_SHORT_OF = "Insufficient "
_NO_DEVICES = (
    "cannot allocate all claims",  # these three of plugins/dynamicresources
    "cannot fit resource",
    "in the process of being allocated",
    "CardInsufficient",  # HAMi's extender, pkg/device/common: CardInsufficientMemory, …Core
    "CardTimeSlicingExhausted",
    "InsufficientRequest",
    "NodeInsufficientDevice",
    "NodeUnfitPod",
)
"""Parts of reasons that tell of devices, and not whether a node has any in all, in neither half."""
_KAI = " due to: "  # Resources were not found for pod NAMESPACE/NAME due to: …
_MOST_REASONS = 200

_TEXTS = (
    # beginning of the reason; words for one node and for several; each from the plugin of that name
    ("Too many pods", "already runs the maximum number of pods", "already run the maximum number of pods"),
    ("node(s) had untolerated taint {node.kubernetes.io/not-ready", "is not ready", "are not ready"),
    ("node(s) had untolerated taint {node.kubernetes.io/unreachable", "is not ready", "are not ready"),
    ("node(s) had untolerated taint {node.kubernetes.io/unschedulable", "is closed", "are closed"),
    ("node(s) were unschedulable", "is closed", "are closed"),
    (
        "node(s) didn't match Pod's node affinity",
        "does not match where it may run",
        "do not match where it may run",
    ),
    (
        "node(s) didn't satisfy plugin(s) [NodeAffinity",
        "does not match where it may run",
        "do not match where it may run",
    ),
    (
        "node(s) didn't match the requested node name",
        "does not match where it may run",
        "do not match where it may run",
    ),
    ("node(s) didn't match PersistentVolume's", "cannot have its volume", "cannot have its volume"),
    ("node(s) had volume node affinity conflict", "cannot have its volume", "cannot have its volume"),
    ("node(s) had no available volume zone", "cannot have its volume", "cannot have its volume"),
    ("node(s) didn't satisfy plugin(s) [Volume", "cannot have its volume", "cannot have its volume"),
    ("node(s) didn't find available persistent", "cannot have its volume", "cannot have its volume"),
    (
        "node(s) exceed max volume count",
        "already has the maximum number of volumes",
        "already have the maximum number of volumes",
    ),
    (
        "node(s) didn't match pod affinity",
        "is not near a pod that it must be near",
        "are not near a pod that it must be near",
    ),
    (
        "node(s) didn't match pod anti-affinity",
        "has a pod that it must not share a node with",
        "have a pod that it must not share a node with",
    ),
    ("node(s) didn't satisfy existing pods", "has a pod that excludes it", "have a pod that excludes it"),
    ("node(s) didn't match pod topology", "would violate its spread rules", "would violate its spread rules"),
    ("node(s) didn't have free ports", "has its port taken", "have its port taken"),
    ("device class ", "lacks its DeviceClass", "lack its DeviceClass"),
)
_TAINT = "node(s) had untolerated taint"

_NEVER = (
    # beginning of what no waiting and no new node can change, or a part of it; words; what to do
    (
        "ReadWriteOncePod",
        "only one pod may use its volume (ReadWriteOncePod), and the notebook is using it",
        "ask for a volume that several pods may use (ReadWriteMany)",
    ),
    (
        "unbound immediate PersistentVolumeClaims",
        "one of its volumes has no storage (the claim is not bound)",
        "`kubectl describe pvc` in your namespace says why; ask your administrator",
    ),
    (
        "bound to non-existent",
        "one of its volumes has lost its storage",
        "ask your administrator: the claim is bound to a volume that does not exist",
    ),
)


@dataclass(frozen=True, slots=True)
class NoNode:
    """Why no node takes the pod.

    Attributes:
        words: One line for the cell.
        waits: It takes nothing but time: what is short on some node is only in use.
        never: Neither time nor a new node will help; `next_step` says what does.
        next_step: What to do where it does not wait; may be empty.
    """

    words: str
    waits: bool
    never: bool = False
    next_step: str = ""


def no_node(message: str, gpus: Sequence[str]) -> NoNode:
    """Take the message of the condition ``PodScheduled`` apart.

    Args:
        message: Of any form: that of another scheduler is passed on as it is, and waits.
        gpus: Names of the resources by which the pod asks for GPUs.
    """
    head, _, after = message[:LONGEST_READ].partition(_PREEMPTION)
    nodes, reasons = _counted(head)
    if nodes is None or len(message) >= LONGEST_READ:
        said = message[:LONGEST_READ]
        said = said.partition(_KAI)[2] or said
        return NoNode(words(f"the scheduler cannot find a node: {said}"), waits=True)
    whole = _listed(head)
    for part, said, cure in _NEVER:
        if part in whole:
            return NoNode(said, waits=False, never=True, next_step=cure)
    if whole.startswith("persistentvolumeclaim "):  # of one claim: no node was looked at
        cure = "the notebook and its GPU pod need the same volumes: `kubectl get pvc` lists those that exist."
        return NoNode(words(whole), waits=False, never=True, next_step=cure)
    if not reasons:
        return NoNode(words(f"the scheduler cannot find a node: {whole or 'there is none'}"), waits=True)
    helped, could = _could_serve(after, nodes)
    full = [reason for _, reason in reasons if _waits(reason)]
    waits = bool(full) and (could > 0 or not helped or any(_has_no_devices(reason) for reason in full))
    strange = [reason for _, reason in reasons if not _is_known(reason)]  # an extender's, as HAMi's
    if strange and (could > 0 or not helped):
        waits = True
    told = _said(nodes, reasons, gpus, could if helped else None)
    return NoNode(words(told), waits, next_step="" if waits else _cure(reasons, gpus))


def _counted(half: str) -> tuple[int | None, list[tuple[int, str]]]:
    """How many nodes there are, and each reason with its number of nodes."""
    before, found, _ = half.partition(_AVAILABLE)
    total = before.strip().rpartition("/")[2]
    if not found or not total.isascii() or not total.isdecimal() or len(total) > 6:
        return None, []
    reasons: list[tuple[int, str]] = []
    for part in _listed(half).split(", ", _MOST_REASONS)[:_MOST_REASONS]:
        count, _, reason = part.partition(" ")
        if count.isascii() and count.isdecimal() and len(count) <= 6 and reason:
            reasons.append((int(count), reason.rstrip(".")))
        elif reasons:  # a comma of the reason's own
            reasons[-1] = (reasons[-1][0], f"{reasons[-1][1]}, {part}")
    return int(total), reasons


def _listed(half: str) -> str:
    """The reasons of a half, without what other plugins say after them."""
    return half.partition(_AVAILABLE)[2].strip().partition(". ")[0].rstrip(".")


def _could_serve(half: str, nodes: int) -> tuple[bool, int]:
    """Whether the second half tells it, and how many nodes could serve the pod if others left."""
    _, reasons = _counted(half)
    counted = sum(count for count, _ in reasons)
    if (
        not reasons or counted < nodes
    ):  # cut, or of another form: "not eligible due to preemptionPolicy=Never."
        return False, 0
    return True, sum(count for count, reason in reasons if not reason.startswith(_NOT_HELPFUL))


def _waits(reason: str) -> bool:
    """Whether others hold what is short there, and may give it back."""
    beginnings = (
        _SHORT_OF,
        "Too many pods",
        "node(s) exceed max volume count",
        "node(s) didn't have free ports",
    )
    return reason.startswith(beginnings) or _has_no_devices(reason)


def _has_no_devices(reason: str) -> bool:
    return any(part in reason for part in _NO_DEVICES)


def _is_known(reason: str) -> bool:
    beginnings = (_SHORT_OF, _TAINT, "node(s)", *(text for text, _, _ in _TEXTS))
    return reason.startswith(beginnings) or _has_no_devices(reason)


def _said(nodes: int, reasons: list[tuple[int, str]], gpus: Sequence[str], could: int | None) -> str:
    """``2 of 3 nodes have no free GPU, 1 has a taint that this pod does not tolerate``."""
    parts: list[str] = []
    short = max((count for count, reason in reasons if _is_gpu(reason, gpus)), default=0)
    if short and could == 0 and not any(_has_no_devices(reason) for _, reason in reasons):
        parts.append(_part(short, nodes, "has too few GPUs or none", "have too few GPUs or none"))
    elif short and could and could < short and not _short_of_others(reasons, gpus):
        parts.append(_part(could, nodes, "has no free GPU", "have no free GPU"))
        parts.append(_part(short - could, None, "has too few or none", "have too few or none"))
    elif short:
        parts.append(_part(short, nodes, "has no free GPU", "have no free GPU"))
    told: dict[tuple[str, str], int] = {}
    for count, reason in sorted(reasons, key=lambda each: -each[0]):
        if not _is_gpu(reason, gpus):
            pair = _texts(reason)
            told[pair] = told.get(pair, 0) + count
    for (one, several), count in told.items():
        parts.append(_part(min(count, nodes), None if parts else nodes, one, several))
    return ", ".join(parts)


def _part(count: int, nodes: int | None, one: str, several: str) -> str:
    if nodes is None:
        return f"{count} {one if count == 1 else several}"
    if nodes == 1:
        return f"the only node {one}"
    return f"{count} of {nodes} nodes {one if count == 1 else several}"


def _is_gpu(reason: str, gpus: Sequence[str]) -> bool:
    return _has_no_devices(reason) or (
        reason.startswith(_SHORT_OF) and reason.removeprefix(_SHORT_OF).strip() in gpus
    )


def _short_of_others(reasons: list[tuple[int, str]], gpus: Sequence[str]) -> bool:
    return any(_waits(reason) and not _is_gpu(reason, gpus) for _, reason in reasons)


def _texts(reason: str) -> tuple[str, str]:
    """Words for one node and for several."""
    if reason.startswith(_SHORT_OF):
        name = one_line(reason.removeprefix(_SHORT_OF), 60)
        short = f"too little free {'CPU' if name == 'cpu' else name}"
        return f"has {short}", f"have {short}"
    for beginning, one, several in _TEXTS:
        if reason.startswith(beginning):
            return one, several
    if reason.startswith(_TAINT):
        taint = one_line(reason.partition("{")[2].partition("}")[0].partition(":")[0], 60)  # before 1.34
        named = f"the taint {taint}, which" if taint else "a taint that"
        return f"has {named} this pod does not tolerate", f"have {named} this pod does not tolerate"
    said = one_line(reason.removeprefix("node(s) "), 100)
    return f"says: {said}", f"say: {said}"


def _cure(reasons: list[tuple[int, str]], gpus: Sequence[str]) -> str:
    """What to do where no node could ever take it."""
    told = [reason for _, reason in reasons]
    if any("volume" in reason.lower() for reason in told):
        return (
            "the notebook's volume can be used only on some nodes, and no GPU node is among them: ask for a "
            "volume for many nodes (ReadWriteMany), or for a notebook on a GPU node."
        )
    if any("affinity" in reason.lower() or "requested node name" in reason for reason in told):
        return (
            "its rule or its volume restricts the pod to certain nodes, and none of them can take "
            "it: ask your administrator about the rule, or start the notebook on a GPU node."
        )
    if any(reason.startswith((_TAINT, "node(s) were unschedulable")) for reason in told):
        return (
            "a node is closed, not ready or reserved by a taint; run the cell again later, or ask your "
            "administrator for a toleration in the settings for GPU pods."
        )
    if any(_is_gpu(reason, gpus) for reason in told):
        return "request fewer GPUs, or ask your administrator about missing GPU nodes."
    return "request less, or ask your administrator: no node is large enough for this pod."
