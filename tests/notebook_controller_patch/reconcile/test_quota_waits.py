"""When notebooks that a quota has refused are tried again: once it has room, and not before."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_cluster.watching.cache import Cache
from notebook_controller_patch.reconcile.quota_refusals import QuotaRefusal
from notebook_controller_patch.reconcile.quota_waits import (
    FIRST_TRY_S,
    LONGEST_TRY_S,
    QuotaRecord,
    QuotaWaits,
    quota_record,
)
from tests.bitfusion_cluster.watching.clock import Clock

A, B = ("ann", "a"), ("ann", "b")
UNITS = "requests.bitfusion.io/gpu"
ASKED = QuotaRefusal("gpus", 50, 150, 150, "2026-11-25T03:00:01Z")
AGAIN = QuotaRefusal("gpus", 50, 150, 150, "2026-11-25T03:00:09Z")


class Setting:
    def __init__(self) -> None:
        self.clock = Clock()
        self.later: dict[tuple[str, str], float] = {}
        self.quotas: Cache[QuotaRecord] = Cache(lambda old, new: self.waits.changed(old, new))
        self.waits = QuotaWaits(self.quotas, self.later.__setitem__, self.clock)
        self.quotas.replace({})

    def use(self, used: int, hard: int = 150, namespace: str = "ann") -> None:
        self.later.clear()
        self.quotas.put(QuotaRecord(namespace, "gpus", hard, used))


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_nothing_is_tried_while_there_is_no_room_and_at_once_when_there_is(setting: Setting) -> None:
    setting.use(150)
    assert not setting.waits.refused(A, ASKED)
    assert not setting.waits.refused(B, ASKED)
    setting.use(120)  # not enough
    assert setting.later == {A: 0.0, B: 0.0}
    assert not setting.waits.refused(A, ASKED)
    setting.use(100)
    assert setting.later == {A: 0.0, B: 0.0}
    assert setting.waits.refused(A, ASKED)
    assert setting.waits.refused(B, ASKED)


def test_a_larger_quota_and_one_that_is_gone_are_room_too(setting: Setting) -> None:
    setting.use(150)
    assert not setting.waits.refused(A, ASKED)
    setting.use(150, hard=200)
    assert setting.waits.refused(A, ASKED)
    setting.use(150)
    assert not setting.waits.refused(A, ASKED)
    setting.quotas.remove(("ann", "gpus"))
    assert setting.later == {A: 0.0}
    assert setting.waits.refused(A, ASKED)


def test_one_that_is_refused_although_there_is_room_is_tried_ever_less_often(setting: Setting) -> None:
    setting.use(0)
    pauses = []
    for _ in range(20):
        assert setting.waits.refused(A, ASKED)
        assert not setting.waits.refused(A, ASKED), "not twice at once"
        pauses.append(setting.later[A])
        setting.clock.now += setting.later[A]
    assert pauses[:3] == [FIRST_TRY_S, 2 * FIRST_TRY_S, 4 * FIRST_TRY_S]
    assert pauses[-1] == LONGEST_TRY_S
    setting.use(150)
    assert not setting.waits.refused(A, ASKED)
    setting.use(0)
    assert setting.waits.refused(A, ASKED), "with room anew it begins anew"
    assert setting.later[A] == FIRST_TRY_S


def test_until_quotas_have_been_read_nothing_is_tried() -> None:
    waits = QuotaWaits(Cache(), lambda key, after: None)
    assert not waits.refused(A, ASKED)


def test_each_refusal_is_told_once(setting: Setting) -> None:
    assert setting.waits.to_be_told(A, ASKED)
    assert setting.waits.to_be_told(A, ASKED), "it could not be sent"
    setting.waits.was_told(A, ASKED)
    assert not setting.waits.to_be_told(A, ASKED)
    assert setting.waits.to_be_told(A, AGAIN)
    setting.waits.forget(A)
    assert setting.waits.to_be_told(A, ASKED)


def test_who_does_not_wait_any_more_is_not_woken(setting: Setting) -> None:
    setting.use(150)
    assert not setting.waits.refused(A, ASKED)
    setting.waits.forget(A)
    setting.use(0)
    assert setting.later == {}


@pytest.mark.parametrize(
    ("status", "record"),
    [
        (
            {"hard": {UNITS: "5k"}, "used": {UNITS: "150"}},
            (5000, 150),
        ),
        ({"hard": {UNITS: "0"}}, (0, 0)),
        ({"hard": {"pods": "3"}, "used": {"pods": "1"}}, None),
        ({"hard": None}, None),
        (None, None),
    ],
)
def test_only_quotas_of_units_are_kept(status: Any, record: tuple[int, int] | None) -> None:
    raw = {"metadata": {"namespace": "ann", "name": "gpus"}, "spec": {"hard": {}}, "status": status}
    found = quota_record(raw)
    assert (found and (found.hard, found.used)) == record
    assert quota_record({**raw, "metadata": {"name": "gpus"}}) is None


def test_a_quota_that_counts_no_units_keeps_nobody_waiting_whatever_it_is_told(setting: Setting) -> None:
    raw = {
        "metadata": {"namespace": "ann", "name": "gpus", "uid": "u"},
        "spec": {"hard": {"bitfusion.io/gpu": "0"}},
        "status": {"hard": {"bitfusion.io/gpu": "0"}},
    }
    assert quota_record(raw) is None
    record = quota_record(raw, ["requests.nvidia.com/gpu"])
    assert record == QuotaRecord("ann", "gpus", None, 0, ("bitfusion.io/gpu",), "u")
    setting.quotas.put(record)
    assert setting.waits.refused(A, ASKED)
