"""Kueue's answers: the place of a pod, what holds its Workload, and how often one may ask."""

from __future__ import annotations

import pytest
from hypothesis import given

from bitfusion_pods.places.kueue import (
    ASK_COVER,
    ASK_QUEUE,
    ASK_QUOTA,
    GATE,
    QUEUE_LABEL,
    Held,
    Place,
    held_by,
    held_in_events,
    is_gated,
    next_pause,
    ordinal,
    pending_path,
    place_of,
    place_words,
    queue_of,
    workloads_path,
)
from tests.pods.places.anything import anything
from tests.pods.places.recorded import UID, Raw


def workload(uid: str, position: int) -> Raw:
    """As pkg/visibility/storage/utils.go, newPendingWorkload, makes it."""
    return {
        "metadata": {
            "name": f"pod-x-{position}",
            "namespace": "alice",
            "creationTimestamp": "2026-11-25T10:00:00Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": uid}],
        },
        "priority": 0,
        "localQueueName": "team-a",
        "positionInClusterQueue": position,
        "positionInLocalQueue": position,
    }


def summary(*uids: str) -> Raw:
    return {
        "kind": "PendingWorkloadsSummary",
        "apiVersion": "visibility.kueue.x-k8s.io/v1beta2",
        "metadata": {},
        "items": [workload(uid, position) for position, uid in enumerate(uids)],
    }


def test_a_place_counts_from_one() -> None:
    answer = summary("a", "b", UID, "d", "e", "f", "g")
    assert place_of(answer, UID) == Place(3, 7)
    assert place_words(place_of(answer, UID)) == "Kueue: about 3rd of 7"
    assert place_of(summary(UID), UID) == Place(1, 1)


def test_others_of_the_cluster_queue_are_before_one_too() -> None:
    answer = summary("a", UID, "c")
    for item, position in zip(answer["items"], (1, 4, 5), strict=True):
        item["positionInClusterQueue"] = position
    assert place_of(answer, UID) == Place(5, 6, more=True)
    assert place_words(place_of(answer, UID)) == "Kueue: about 5th of 6 or more"


def test_who_is_not_in_the_answer_has_no_place() -> None:
    assert place_of(summary("a", "b"), UID) is None
    assert place_of(summary(""), "") is None
    assert place_of({"items": [workload(UID, -1)]}, UID) is None
    assert place_words(None, "team-a") == "Kueue: waiting in the queue team-a"
    assert place_words(None) == "Kueue: waiting in its queue"


def test_a_list_that_was_cut_says_so() -> None:
    whole = summary(*(str(number) for number in range(999)), UID)
    assert place_words(place_of(whole, UID)) == "Kueue: about 1000th of 1000 or more"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1, "1st"),
        (2, "2nd"),
        (3, "3rd"),
        (4, "4th"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (111, "111th"),
    ],
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text


def test_the_path_takes_any_name() -> None:
    assert pending_path("alice", "team-a") == (
        "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/alice/localqueues/team-a/pendingworkloads"
    )
    assert pending_path("../x", "a?b", "v1beta1") == (
        "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/..%2Fx/localqueues/a%3Fb/pendingworkloads"
    )


def test_pauses_grow_from_two_seconds_to_ten() -> None:
    pauses, pause = [], 0.0
    for _ in range(6):
        pause = next_pause(pause)
        pauses.append(pause)
    assert pauses == [2, 3, 4.5, 6.75, 10, 10]


def test_a_pod_tells_its_queue_and_its_gate() -> None:
    queued = {
        "metadata": {"labels": {QUEUE_LABEL: "team-a"}},
        "spec": {"schedulingGates": [{"name": "other"}, {"name": GATE}]},
    }
    assert (queue_of(queued), is_gated(queued)) == ("team-a", True)
    assert (queue_of({}), is_gated({"spec": {"schedulingGates": [{"name": "other"}]}})) == ("", False)


def reserved(status: str, message: str) -> Raw:
    return {
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": status, "reason": "Pending", "message": message}
            ]
        }
    }


NO_FLAVOR = "couldn't assign flavors to pod set main: "
UNUSED = f"{NO_FLAVOR}insufficient unused quota for nvidia.com/gpu in flavor a100, 1 more needed"
NEVER = (
    f"{NO_FLAVOR}insufficient quota for nvidia.com/gpu in flavor a100, previously considered podsets "
    "requests "
    "(0) + current podset request (8) > maximum capacity (4)"
)


HELD = [
    (UNUSED, Held("the queue's quota of nvidia.com/gpu is used up")),
    (
        f"{UNUSED}. Pending the preemption of 1 workload(s)",
        Held("it ends others with lower priority to make room"),
    ),
    (NEVER, Held("the queue can never provide so much nvidia.com/gpu", never=True, next_step=ASK_QUOTA)),
    (
        f"{NO_FLAVOR}resource cpu unavailable in ClusterQueue",
        Held("the queue has no cpu", never=True, next_step=ASK_COVER),
    ),
    # one flavor is too small, another only in use
    (f"{NEVER}, {UNUSED}", Held("the queue's quota of nvidia.com/gpu is used up")),
    (
        "LocalQueue team-a doesn't exist",
        Held("LocalQueue team-a doesn't exist", never=True, next_step=ASK_QUEUE),
    ),
    ("ClusterQueue gpus is inactive", Held("ClusterQueue gpus is inactive")),
    ("", None),
]


@pytest.mark.parametrize(("message", "held"), HELD)
def test_what_holds_a_workload(message: str, held: Held | None) -> None:
    assert held_by(reserved("False", message)) == held
    assert held_by(reserved("True", message)) is None


def told(name: str, message: str, at: int = 10, kind: str = "Workload", reason: str = "Pending") -> Raw:
    return {
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-11-25T10:00:{at}Z",
    }


@pytest.mark.parametrize(("message", "held"), HELD)
def test_what_holds_a_workload_is_read_from_its_last_event_too(message: str, held: Held | None) -> None:
    events = [
        told("pod-x-0a1b2", NEVER, 11),
        told("pod-x-0a1b2", message, 12),
        told("pod-x-0a1b2", NEVER, 10),
        told("pod-x-y-0a1b2", NEVER, 13),
        told("pod-x-0a1b2", NEVER, 13, kind="Pod"),
        told("pod-x-0a1b2", NEVER, 13, reason="QuotaReserved"),
    ]
    assert held_in_events(events, "x") == held
    assert held_in_events(events, "z") is None


def test_what_holds_a_pod_stands_behind_its_place() -> None:
    held = Held("the queue's quota of nvidia.com/gpu is used up")
    words = "Kueue: about 3rd of 7, the queue's quota of nvidia.com/gpu is used up"
    assert place_words(Place(3, 7), "team-a", held) == words
    assert place_words(None, "team-a", held) == f"Kueue: waiting in the queue team-a, {held.words}"


def test_the_path_of_a_workload_takes_any_uid() -> None:
    assert workloads_path("alice", "1-2") == (
        "/apis/kueue.x-k8s.io/v1beta2/namespaces/alice/workloads?labelSelector=kueue.x-k8s.io%2Fjob-uid%3D1-2"
    )
    assert workloads_path("a/b", "&limit=1", "v1beta1").endswith(
        "v1beta1/namespaces/a%2Fb/workloads?labelSelector=kueue.x-k8s.io%2Fjob-uid%3D%26limit%3D1"
    )


@given(anything)
def test_any_answer_is_read(answer: object) -> None:
    place_of(answer, UID)
    place_of({"items": answer}, UID)
    held_by(answer)
    held_in_events(answer, "x")
    held_in_events([{"involvedObject": answer, "reason": "Pending", "message": answer}], "x")
    place_of({"items": [{"positionInClusterQueue": answer, "metadata": answer}]}, UID)
    held_by(
        {"status": {"conditions": [answer, {"type": "QuotaReserved", "status": "False", "message": answer}]}}
    )
