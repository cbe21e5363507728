"""Parts of a raw pod that several readers of this package need, and times as Kubernetes writes them. Pure.

All take anything and raise nothing: where something else stands than the API has there, nothing stands there.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import is_being_deleted, mapping, mappings, metadata_of, text
from bitfusion_client.one_line import one_line
from bitfusion_client.pod.pod_contract import PROGRAM_CONTAINER

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

LONGEST_WORDS = 200
"""Characters that a cell shows in its line."""
LONGEST_READ = 16_384
"""Characters of a message that are looked at. The scheduler's are longest: 100 for each reason."""
LONGEST_NAME = 80
_MOST_ITEMS = 200


def words(said: str) -> str:
    """One line for the cell."""
    return one_line(said, LONGEST_WORDS)


def message_of(data: RawObject) -> str:
    """``message`` of a condition, a state or a status, cut; its line ends are blanks."""
    return " ".join(text(data.get("message"))[:LONGEST_READ].split())


def name_of(value: object) -> str:
    """A name as one shows it; empty if it is none."""
    return one_line(text(value)[:LONGEST_NAME])


def reason_of(data: RawObject) -> str:
    """``reason`` of a condition, a state or a status."""
    return text(data.get("reason"))[:LONGEST_NAME]


def status_of(pod: RawObject) -> RawObject:
    """``status``."""
    return mapping(pod.get("status"))


def phase_of(pod: RawObject) -> str:
    """``status.phase``."""
    return text(status_of(pod).get("phase"))


def node_of(pod: RawObject) -> str:
    """The node that the scheduler has chosen; empty before."""
    return name_of(mapping(pod.get("spec")).get("nodeName"))


def condition_of(pod: RawObject, kind: str) -> RawObject:
    """The condition of this type; empty if there is none."""
    for condition in mappings(status_of(pod).get("conditions"))[:_MOST_ITEMS]:
        if condition.get("type") == kind:
            return condition
    return {}


def containers_of(pod: RawObject, init: bool = False) -> list[RawObject]:
    """``containerStatuses``, or ``initContainerStatuses``."""
    key = "initContainerStatuses" if init else "containerStatuses"
    return mappings(status_of(pod).get(key))[:_MOST_ITEMS]


def program_of(pod: RawObject) -> RawObject:
    """The status of the container in which the program runs; empty before the kubelet tells one."""
    for status in containers_of(pod):
        if status.get("name") == PROGRAM_CONTAINER:
            return status
    return {}


def state_of(status: RawObject, kind: str) -> RawObject | None:
    """The container's state if it is this one (waiting, running, terminated), otherwise None."""
    state = mapping(status.get("state")).get(kind)
    return state if isinstance(state, dict) else None


def exit_code_of(pod: RawObject) -> int | None:
    """With which status the program's container has ended, as a shell counts; None: it has not, or never ran.

    The second witness of a program's end, where the stream was lost before it was told.
    """
    ended = state_of(program_of(pod), "terminated")
    if ended is None or reason_of(ended) in NEVER_RAN:
        return None
    code = ended.get("exitCode")
    return code if type(code) is int and 0 <= code <= 255 else None


NEVER_RAN = ("StartError", "ContainerCannotRun", "ContainerStatusUnknown")
"""Reasons of ended containers whose status is nobody's: containerd's, Docker's, and the kubelet's own
(pkg/kubelet/container/runtime.go), when the container was gone before it looked."""


def seconds(value: object) -> float | None:
    """Seconds since the epoch of ``2026-11-25T10:30:00Z`` or ``…:00.123456Z``; None if it is no such time."""
    stamp = text(value)
    if not 20 <= len(stamp) <= 40 or stamp[-1] != "Z" or not stamp.isascii():
        return None
    if (stamp[4], stamp[7], stamp[10], stamp[13], stamp[16]) != ("-", "-", "T", ":", ":"):
        return None
    parts = (stamp[:4], stamp[5:7], stamp[8:10], stamp[11:13], stamp[14:16], stamp[17:19])
    fraction = stamp[20:-1] if stamp[19] == "." else ""
    if not all(part.isdecimal() for part in parts) or (fraction and not fraction.isdecimal()):
        return None
    year, month, day, hour, minute, second = map(int, parts)
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    whole = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    return whole + (float("0." + fraction) if fraction else 0.0)


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; `datetime` would cost a program's start some milliseconds.

    The year is counted from March, so that the day that a leap year has more is its last.
    """
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def created_at(pod: RawObject) -> float | None:
    """When the API server has made it."""
    return seconds(metadata_of(pod).get("creationTimestamp"))


def changed_at(condition: RawObject) -> float | None:
    """Since when a condition has its status."""
    return seconds(condition.get("lastTransitionTime"))


def is_refused(pod: RawObject) -> bool:
    """Whether the kubelet did not let it in (kubelet.go, ``rejectPod``): no container of it was ever made.

    A kubelet that was restarted looks again at the pods it had, and then says so of one that ran.
    """
    said = message_of(status_of(pod))
    return phase_of(pod) == "Failed" and said.startswith("Pod was rejected") and not containers_of(pod)


def is_miscounted(pod: RawObject) -> bool:
    """Of a refused one: whether the kubelet's counts were not the scheduler's, which passes.

    It frees devices late (``UnexpectedAdmissionError``), two pods were sent to one place (``OutOfcpu``,
    ``OutOfnvidia.com/gpu``), it is short of memory or disk (``Evicted``), or it is shutting down.
    """
    reason = reason_of(status_of(pod))
    return reason in ("UnexpectedAdmissionError", "NodeShutdown", "Evicted") or reason.startswith("OutOf")


def node_is_silent(pod: object) -> bool:
    """Whether the pod's node does not answer, as the cluster sees it, after some 40 s.

    The node controller takes ``Ready`` from such a pod and leaves ``ContainersReady``, which is the kubelet's
    (pkg/controller/util/node/controller_utils.go, ``MarkPodsNotReady``).
    """
    raw = mapping(pod)
    ready = condition_of(raw, "Ready").get("status")
    return ready == "False" and condition_of(raw, "ContainersReady").get("status") == "True"


def is_going(pod: RawObject) -> bool:
    """Whether somebody has deleted it, and it is not gone yet."""
    return is_being_deleted(pod)
