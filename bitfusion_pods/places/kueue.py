"""Kueue: the names that a queued pod carries, its place, why it waits, how often one may ask. Pure.

Facts from the module sigs.k8s.io/kueue v0.17.0: pkg/controller/constants/constants.go and
pkg/controller/jobs/pod/constants/constants.go (names), apis/visibility/v1beta2/types.go and
pkg/visibility/storage (the answer), pkg/visibility/server.go (v1beta2 is preferred, v1beta1 still served).
The answer can only be got, not watched, and tells an order, not a promise: priorities and fair sharing let
others pass. It lists the workloads of LocalQueues of this name, in all namespaces that share the ClusterQueue
(namespaces are not compared), each with its place there and in the ClusterQueue.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.raw_objects import labels_of, mapping, mappings, metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_pods.places.statuses import LONGEST_READ, name_of, words

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
"""Of a Workload: the uid of the pod that it stands for."""
VERSIONS = ("v1beta2", "v1beta1")
"""Of Kueue's APIs, the preferred first: where one answers 404, ask the next."""
MOST_WORKLOADS = 1000
"""So many the answer lists unless asked for others (pkg/constants, DefaultPendingWorkloadsLimit)."""
SHORTEST_PAUSE, LONGEST_PAUSE = 2.0, 10.0
_USED_UP = "insufficient unused quota for "
_TOO_MUCH = "insufficient quota for "
_NOT_THERE = " unavailable in ClusterQueue"
_PREEMPTING = "Pending the preemption of "

ASK_QUOTA = "ask for less, or ask your administrator for more in the queue {}."
ASK_COVER = (
    "ask your administrator: the ClusterQueue of the queue {} must cover it, or Kueue's configuration must "
    "exclude it (excludeResourcePrefixes)."
)
ASK_QUEUE = "ask your administrator: the settings for GPU pods name the queue {}."
"""What to do where Kueue will never admit the pod."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod stands in its ClusterQueue: `position` counts from 1, also those of other LocalQueues.

    `of` so many are known to wait; `more` where others of other queues may wait behind them.
    """

    position: int
    of: int
    more: bool = False


def pending_path(namespace: str, queue: str, version: str = VERSIONS[0]) -> str:
    """The path of the API server that lists who waits in a LocalQueue."""
    from urllib.parse import quote  # whoever asks has it already: http.client needs it

    return (
        f"/apis/visibility.kueue.x-k8s.io/{version}/namespaces/{quote(namespace, safe='')}"
        f"/localqueues/{quote(queue, safe='')}/pendingworkloads"
    )


def workloads_path(namespace: str, uid: str, version: str = VERSIONS[0]) -> str:
    """The path of the API server that lists the Workload of the pod with this uid."""
    from urllib.parse import quote

    return (
        f"/apis/kueue.x-k8s.io/{version}/namespaces/{quote(namespace, safe='')}/workloads"
        f"?labelSelector={quote(f'{JOB_UID_LABEL}={uid}', safe='')}"
    )


def queue_of(pod: RawObject) -> str:
    """The name of the pod's LocalQueue; empty if it stands in none."""
    return name_of(labels_of(pod).get(QUEUE_LABEL))


def is_gated(pod: RawObject) -> bool:
    """Whether Kueue has not let it go to the scheduler yet."""
    gates = mappings(mapping(pod.get("spec")).get("schedulingGates"))
    return any(gate.get("name") == GATE for gate in gates)


def place_of(answer: object, uid: str) -> Place | None:
    """Where the pod with this uid stands; None: not in this answer, admitted or not yet taken up.

    Args:
        answer: What the API at `pending_path` answered, of any shape.
        uid: ``metadata.uid`` of the pod, which owns its Workload.
    """
    items = mappings(mapping(answer).get("items"))[: MOST_WORKLOADS * 10]
    found, last = 0, len(items)
    for item in items:
        position = max(_number(item, "positionInClusterQueue"), _number(item, "positionInLocalQueue"))
        last = max(last, position)
        owners = mappings(metadata_of(item).get("ownerReferences"))
        if uid and any(owner.get("uid") == uid for owner in owners):
            found = position
    if not found:
        return None
    return Place(found, last, more=last > len(items) or len(items) >= MOST_WORKLOADS)


def _number(item: RawObject, field: str) -> int:
    """A place, from 1; 0: it is none."""
    position = item.get(field, 0)  # 0 may be left out
    return position + 1 if type(position) is int and 0 <= position < 10**6 else 0


def place_words(place: Place | None, queue: str = "", held: Held | None = None) -> str:
    """``Kueue: about 3rd of 7``, or that the place is not known; and what holds the pod."""
    if place is None:
        said = f"Kueue: waiting in the queue {queue}" if queue else "Kueue: waiting in its queue"
    else:
        more = " or more" if place.more else ""
        said = f"Kueue: about {ordinal(place.position)} of {place.of}{more}"
    return words(f"{said}, {held.words}" if held else said)


def next_pause(pause: float = 0.0) -> float:
    """Seconds to the next question, from those before the last: 2, 3, 4.5, 6.75, 10. Begin with 0."""
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, pause * 1.5))


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"


@dataclass(frozen=True, slots=True)
class Held:
    """Why Kueue does not admit a Workload.

    `never`: it never will, as the queue is today; then `next_step` says what to do, with the queue's name for
    ``{}``.
    """

    words: str
    never: bool = False
    next_step: str = ""


def held_by(workload: object) -> Held | None:
    """Why, from the raw Workload of the pod; None: it is admitted, or nobody says.

    The condition ``QuotaReserved`` is False with a message of pkg/scheduler/flavorassigner/flavorassigner.go,
    or of pkg/controller/core/workload_controller.go where the queue is missing or stopped.
    """
    for condition in mappings(mapping(mapping(workload).get("status")).get("conditions"))[:100]:
        if condition.get("type") == "QuotaReserved" and condition.get("status") == "False":
            return held_in(condition.get("message"))
    return None


def held_in_events(events: object, pod: str) -> Held | None:
    """The same from raw events, for those who may not read Workloads.

    They have the sentences of Kueue's scheduler, but not those of workload_controller.go. A Workload has the
    name ``pod-<name>-<five letters>``.
    """
    newest, when = None, ""
    for event in mappings(events)[:MOST_WORKLOADS]:
        about = mapping(event.get("involvedObject"))
        name, at = text(about.get("name")), text(event.get("lastTimestamp"))
        if (about.get("kind"), event.get("reason")) != ("Workload", "Pending") or at < when:
            continue
        if name.rpartition("-")[0] == f"pod-{pod}":
            newest, when = event.get("message"), at
    return held_in(newest)


def held_in(message: object) -> Held | None:
    """The same from Kueue's sentence."""
    said = one_line(text(message)[:LONGEST_READ], LONGEST_READ)
    if not said:
        return None
    if _PREEMPTING in said:
        return Held("it ends others with lower priority to make room")
    if _USED_UP in said:  # of one flavor at least: it comes free
        return Held(words(f"the queue's quota of {_resource(said, _USED_UP)} is used up"))
    if _TOO_MUCH in said and "> maximum capacity" in said:
        told = f"the queue can never provide so much {_resource(said, _TOO_MUCH)}"
        return Held(words(told), never=True, next_step=ASK_QUOTA)
    if _NOT_THERE in said:
        resource = name_of(said.partition(_NOT_THERE)[0].rpartition("resource ")[2])
        return Held(words(f"the queue has no {resource}"), never=True, next_step=ASK_COVER)
    never = "doesn't exist" in said
    return Held(words(said), never=never, next_step=ASK_QUEUE if never else "")


def _resource(said: str, before: str) -> str:
    return name_of(said.partition(before)[2].partition(" in flavor ")[0])
