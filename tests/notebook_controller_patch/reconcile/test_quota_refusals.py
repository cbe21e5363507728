"""The API server's words about a quota that is used up, as kube-apiserver 1.34 has them, and all else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_controller_patch.reconcile.quota_refusals import QuotaRefusal, quota_refusal

K = "requests.bitfusion.io/gpu"
# in the StatefulSet's Event; tests/cluster/test_quota_of_units.py compares it with a real API server
BEGINNING = 'create Pod four-0 in StatefulSet four failed error: pods "four-0" is forbidden: '
ONE = f"{BEGINNING}exceeded quota: gpus, requested: {K}=50, used: {K}=150, limited: {K}=150"
SEVERAL = (
    f"{BEGINNING}exceeded quota: all.gpus, requested: {K}=50,requests.cpu=2, used: {K}=5k,requests.cpu=7, "
    f"limited: {K}=1e2,requests.cpu=8"
)
CPU = f"{BEGINNING}exceeded quota: cpus, requested: limits.cpu=2, used: limits.cpu=7, limited: limits.cpu=8"
MUST = f"{BEGINNING}failed quota: cpus: must specify requests.cpu for: c"
T1, T2 = "2026-11-25T03:00:01Z", "2026-11-25T03:00:02Z"


def event(message: object, last: str = T1) -> dict[str, Any]:
    return {"message": message, "lastTimestamp": last}


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([], None),
        ([event(ONE)], QuotaRefusal("gpus", 50, 150, 150, T1)),
        ([event(f"(combined from similar events): {ONE}")], QuotaRefusal("gpus", 50, 150, 150, T1)),
        ([event(SEVERAL)], QuotaRefusal("all.gpus", 50, 5000, 100, T1)),
        ([event(ONE), event(MUST, T2)], None),  # the newest counts
        ([event(ONE, T2), event(MUST)], QuotaRefusal("gpus", 50, 150, 150, T2)),
        ([event(CPU)], None),
        ([event(MUST)], None),
        ([event(ONE.replace(f"used: {K}=150", "used: "))], None),
        ([event(ONE.replace(K, "requests.bitfusion.io/gpus"))], None),
        ([event(7)], None),
        ([{}], None),
    ],
)
def test_a_quota_of_units_that_is_used_up_is_known_by_the_newest_event(
    events: list[dict[str, Any]], found: QuotaRefusal | None
) -> None:
    assert quota_refusal(events) == found


@given(st.text(max_size=60), st.sampled_from([ONE, SEVERAL, CPU]), st.integers(0, 200))
def test_no_words_are_a_crash(inserted: str, words: str, at: int) -> None:
    found = quota_refusal([event(words[:at] + inserted + words[at:])])
    assert found is None or (found.requested >= 0 and found.limited >= 0)
