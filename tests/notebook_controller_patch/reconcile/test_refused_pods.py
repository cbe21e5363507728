"""Which of the notebooks without a pod is tried when: one while the injector is away, all when it is back."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from notebook_controller_patch.reconcile.refused_pods import (
    FIRST_LOOK_S,
    LONGEST_LOOK_S,
    TRY_S,
    RefusedPods,
    absences,
    injector_was_away,
)
from tests.bitfusion_cluster.watching.clock import Clock

A, B, C = ("ann", "a"), ("ann", "b"), ("ben", "c")
# as kube-apiserver 1.34 says it, in the StatefulSet's Event
AWAY = (
    "create Pod a-0 in StatefulSet a failed error: Internal error occurred: failed calling webhook "
    '"pods.bitfusion.io": failed to call webhook: Post "https://bitfusion-injector.kubeflow.svc:443/admit/pods'
    '?timeout=5s": dial tcp 10.0.0.7:443: connect: connection refused'
)
QUOTA = (
    'create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: exceeded quota: '
    "q, requested: bitfusion.io/gpu=50, used: bitfusion.io/gpu=100, limited: bitfusion.io/gpu=100"
)
DENIED = AWAY.partition("Internal")[0] + 'admission webhook "pods.bitfusion.io" denied the request: x'
OTHERS = AWAY.replace("pods.bitfusion.io", "pods.example.com")


def event(message: str, last: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"message": message, "lastTimestamp": last, **fields}


@pytest.mark.parametrize(
    ("events", "away"),
    [
        ([], False),
        ([event(AWAY, "2026-11-23T06:00:00Z")], True),
        ([event(QUOTA, "2026-11-23T06:00:00Z")], False),
        ([event(DENIED, "2026-11-23T06:00:00Z")], False),
        ([event(OTHERS, "2026-11-23T06:00:00Z")], False),
        ([event(AWAY, "2026-11-23T06:00:00Z"), event(QUOTA, "2026-11-23T06:00:01Z")], False),
        ([event(QUOTA, "2026-11-23T06:00:00Z"), event(AWAY, "2026-11-23T06:00:01Z")], True),
        ([event(f"(combined from similar events): {AWAY}", "2026-11-23T06:00:00Z")], True),
        (
            [
                event(QUOTA, "2026-11-23T06:00:00Z"),
                event(AWAY, series={"lastObservedTime": "2026-11-23T06:00:02.5Z"}),
            ],
            True,
        ),
        ([event(QUOTA, "2026-11-23T06:00:00Z"), event(AWAY, eventTime="2026-11-23T06:00:02.5Z")], True),
        ([event(AWAY), event(QUOTA, "2026-11-23T06:00:00Z")], False),
        ([{"message": 7, "lastTimestamp": [], "series": "x", "eventTime": {}}, {}], False),
    ],
)
def test_the_newest_event_says_whether_the_injector_was_away(
    events: list[dict[str, Any]], away: bool
) -> None:
    assert injector_was_away(events) is away


NOW = datetime(2026, 11, 23, 6, 10, tzinfo=timezone.utc)


def about(name: str, message: str, last: str, **fields: Any) -> dict[str, Any]:
    return event(message, last, involvedObject={"namespace": "ann", "name": name}, **fields)


@pytest.mark.parametrize(
    ("refusals", "returns", "known"),
    [
        ([], [], {}),
        ([about("a", AWAY, "2026-11-23T06:09:59Z")], [], {A: 59}),
        ([about("a", QUOTA, "2026-11-23T06:09:58Z"), about("a", AWAY, "2026-11-23T06:09:59Z")], [], {A: 59}),
        ([about("a", AWAY, "2026-11-23T06:09:58Z"), about("a", QUOTA, "2026-11-23T06:09:59Z")], [], {}),
        ([about("a", AWAY, "2026-11-23T06:09:58Z"), about("b", QUOTA, "2026-11-23T06:09:59Z")], [], {A: 58}),
        (
            [about("a", AWAY, "2026-11-23T06:09:58Z"), about("b", AWAY, "2026-11-23T06:09:59Z")],
            [about("a", "back", "2026-11-23T06:09:58Z"), about("b", "back", "2026-11-23T06:09:57Z")],
            {B: 59},
        ),
        ([about("a", AWAY, "2026-11-23T05:59:59Z")], [], {}),
        ([about("a", AWAY, "", eventTime="2026-11-23T06:09:59.123456Z")], [], {A: 59}),
        ([about("a", AWAY, "at noon"), {"message": AWAY}, {}], [{}], {}),
    ],
)
def test_a_new_leader_learns_who_was_refused_of_late_and_was_not_told_of_the_return(
    refusals: list[dict[str, Any]], returns: list[dict[str, Any]], known: dict[tuple[str, str], int]
) -> None:
    found = absences(refusals, returns, NOW, lambda key: key)
    assert {key: when.second for key, when in found.items()} == known


def test_a_statefulset_that_is_not_called_as_its_notebook_is_told_of_by_that() -> None:
    generated = about("nb-x7k2p", AWAY, "2026-11-23T06:09:58Z")
    owners = {("ann", "nb-x7k2p"): A}
    for told, known in (("2026-11-23T06:09:57Z", [A]), ("2026-11-23T06:09:58Z", [])):
        returns = [about("a", "back", told)]
        assert list(absences([generated], returns, NOW, lambda key: owners.get(key, key))) == known


class Setting:
    """Refused pods, and when each was queued to be looked at again."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.later: dict[tuple[str, str], float] = {}
        self.pods = RefusedPods(self.later.__setitem__, self.clock, lambda: 1_800_000_000.9 + self.clock.now)


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_a_pod_is_given_time_to_be_made(setting: Setting) -> None:
    assert not setting.pods.to_be_asked(A)
    assert setting.later == {A: FIRST_LOOK_S}
    setting.clock.now += FIRST_LOOK_S
    assert setting.pods.to_be_asked(A)
    assert setting.pods.refused_since(A) is None
    setting.pods.has_pod(A)
    assert not setting.pods.to_be_asked(A)  # and the next time begins anew


def test_one_is_tried_and_the_others_wait(setting: Setting) -> None:
    assert [setting.pods.refused(key) for key in (A, B, C)] == [True, False, False]
    assert setting.later == {A: TRY_S, B: TRY_S, C: TRY_S}
    setting.clock.now += TRY_S
    assert [setting.pods.refused(key) for key in (A, B, C)] == [False, False, True]
    assert setting.later == {A: LONGEST_LOOK_S, B: TRY_S, C: LONGEST_LOOK_S}
    setting.clock.now += TRY_S
    assert [setting.pods.refused(key) for key in (A, B, C)] == [False, True, False]


def test_one_that_says_for_ever_that_it_was_refused_takes_nobodys_turn(setting: Setting) -> None:
    """As Events that somebody has forged say it, of notebooks that could never have a pod."""
    forged = [("ann", f"n{number}") for number in range(100)]
    tried = []
    for _ in range(3):
        tried += [key for key in (*forged, C) if setting.pods.refused(key)]
        setting.clock.now += TRY_S
    assert tried == [forged[0], C, forged[1]]


def test_one_that_cannot_be_looked_at_holds_up_nobody(setting: Setting) -> None:
    for key in (A, C):
        setting.pods.refused(key)
    setting.clock.now += LONGEST_LOOK_S  # reading C's Events fails all the time
    assert setting.pods.refused(A)


def test_when_one_has_its_pod_all_others_are_tried_at_once(setting: Setting) -> None:
    for key in (A, B, C):
        setting.pods.refused(key)
    setting.pods.has_pod(A)
    assert setting.later == {A: TRY_S, B: 0.0, C: 0.0}
    assert setting.pods.refused(B)
    assert setting.pods.refused(C)


def test_another_absence_begins_with_one_again(setting: Setting) -> None:
    for key in (A, B, C):
        setting.pods.refused(key)
    setting.pods.has_pod(A)
    assert [setting.pods.refused(key) for key in (B, C)] == [True, True]
    # tried, and refused again
    assert [setting.pods.refused(key) for key in (C, B)] == [False, False]
    setting.clock.now += TRY_S
    assert [setting.pods.refused(key) for key in (C, B)] == [True, False]


def test_an_absence_is_known_by_when_it_was_noticed_first(setting: Setting) -> None:
    setting.pods.refused(A)
    first = setting.pods.refused_since(A)
    assert first is not None
    assert first.isoformat() == "2027-01-15T08:16:40+00:00"
    setting.clock.now += 60
    setting.pods.refused(A)
    assert setting.pods.refused_since(A) == first
    setting.pods.has_pod(A)
    assert setting.pods.refused_since(A) is None
    setting.pods.refused(A)
    second = setting.pods.refused_since(A)
    assert second is not None
    assert second > first


def test_what_was_learned_is_tried_at_once_and_keeps_its_time(setting: Setting) -> None:
    setting.pods.learn({A: NOW, B: NOW})
    assert setting.pods.to_be_asked(A)
    assert setting.pods.to_be_asked(B)
    assert [setting.pods.refused(A), setting.pods.refused(B)] == [True, False]
    assert setting.pods.refused_since(A) == NOW
    setting.pods.has_pod(A)
    assert setting.pods.refused(B)


def test_a_refusal_for_another_reason_says_that_the_injector_answers(setting: Setting) -> None:
    for key in (A, B):
        setting.pods.refused(key)
    setting.pods.for_another_reason(A)
    assert setting.later == {A: FIRST_LOOK_S, B: 0.0}


def test_looks_at_a_pod_that_others_refuse_become_rare(setting: Setting) -> None:
    seen = []
    for _ in range(8):
        setting.pods.for_another_reason(A)
        seen.append(setting.later[A])
        setting.clock.now += setting.later[A]
    assert seen == [1, 1, 2, 4, 8, 16, 32, 60]


def test_one_that_is_stopped_leaves_its_turn_to_the_next(setting: Setting) -> None:
    for key in (A, B, C):
        setting.pods.refused(key)
    setting.later.clear()
    setting.pods.forget(A)
    assert setting.later == {C: TRY_S}
    setting.clock.now += TRY_S
    assert [setting.pods.refused(key) for key in (B, C)] == [False, True]
    setting.pods.forget(("nobody", "x"))
