"""The events of one pod, newest first, in both forms that the API has them. Pure.

core/v1: ``lastTimestamp`` and ``count`` (the kubelet, controllers: client-go's tools/record). events/v1, as
the core API shows it: ``eventTime`` and ``series`` (the scheduler: tools/events). **A series keeps the
message of its first event** (event_broadcaster.go, ``getKey`` has no note): the scheduler's newest words
stand in the pod's condition, never here.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, metadata_of, text
from bitfusion_pods.places.statuses import LONGEST_NAME, message_of, name_of, seconds

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

MOST = 100
"""So many of a pod's events are kept: the newest."""


@dataclass(frozen=True, slots=True)
class PodEvent:
    """What somebody has told about the pod.

    Attributes:
        reason: ``Pulling``, ``FailedMount``.
        message: Its text, on one line.
        at: When it was last told, in seconds since the epoch; 0.0 if it does not say.
        since: When it was first told.
        container: Of which container it tells; empty: of the pod.
        source: Who tells it: ``kubelet``, ``cluster-autoscaler``.
    """

    reason: str
    message: str
    at: float = 0.0
    since: float = 0.0
    container: str = ""
    source: str = ""


def events_of(events: object, uid: str) -> list[PodEvent]:
    """Those of a list that belong to the pod with this uid, newest first.

    Args:
        events: ``items`` of an EventList, of any shape and length.
        uid: ``metadata.uid`` of the pod; with an empty one nothing belongs to it.
    """
    mine = [
        event
        for event in mappings(events)
        if uid and mapping(event.get("involvedObject") or event.get("regarding")).get("uid") == uid
    ]
    mine.sort(key=_age, reverse=True)
    return [_event(event) for event in mine[:MOST]]


def _age(event: RawObject) -> tuple[int, str]:
    """Their names end with the time of the first in nanoseconds; times of core/v1 have whole seconds."""
    return int(_at(event)), text(metadata_of(event).get("name"))[-LONGEST_NAME:]


def _event(event: RawObject) -> PodEvent:
    path = text(mapping(event.get("involvedObject") or event.get("regarding")).get("fieldPath"))
    source = event.get("reportingComponent") or mapping(event.get("source")).get("component")
    return PodEvent(
        reason=text(event.get("reason"))[:LONGEST_NAME],
        message=message_of(event) or message_of({"message": event.get("note")}),
        at=_at(event),
        since=_first(event),
        container=name_of(path.partition("{")[2].partition("}")[0]),  # spec.containers{program}
        source=name_of(source),
    )


def _at(event: RawObject) -> float:
    series = mapping(event.get("series"))
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((at for value in times if (at := seconds(value)) is not None), _first(event))


def _first(event: RawObject) -> float:
    times = (event.get("firstTimestamp"), event.get("eventTime"), metadata_of(event).get("creationTimestamp"))
    return next((at for value in times if (at := seconds(value)) is not None), 0.0)
