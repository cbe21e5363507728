"""What a person reads of a pool that is out of reach: since when, until when, why, and that it is back."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bitfusion_client.command.client_lines import BackInReach, OutOfReach
from bitfusion_kernel.gpu import pool_outage
from bitfusion_kernel.gpu.pool_outage import PoolOutage

POOL = "gpu.example:56001"
NOON = 1_795_258_800.0  # 2026-11-21 12:00:00 in the zone below


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1")
        time.tzset()
        yield
    time.tzset()


def at(seconds: float) -> float:
    return NOON + seconds


def away(reason: str = "no answer", ends_in_s: int | None = 85) -> OutOfReach:
    return OutOfReach("", "WARN", "", POOL, reason, ends_in_s)


def test_what_is_shown_while_it_lasts() -> None:
    outage = pool_outage.noticed(away(), None, at(10))
    assert pool_outage.render(outage, at(11))["text/plain"].splitlines() == [
        f"The GPU pool {POOL} is out of reach since 12:00:10: no answer",
        "Cells go on running.",
        "This kernel is ended at 12:01:35 unless the pool is back. "
        "Save what you need from it to a file before.",
    ]


def test_a_gpu_pod_is_called_a_pod() -> None:
    line = OutOfReach("", "WARN", "", "digits-0-gpu-1", "no answer", 20)
    shown = pool_outage.render(pool_outage.noticed(line, None, at(10)), at(11))["text/plain"]
    assert shown.startswith("The GPU pod digits-0-gpu-1 is out of reach since 12:00:10: no answer")
    assert "unless the pod is back" in shown


def test_what_is_shown_once_it_is_back() -> None:
    outage = pool_outage.noticed(away(), None, at(10))
    back = pool_outage.over(BackInReach("", "INFO", "", POOL, 42), outage, at(52))
    assert pool_outage.render(back, at(52))["text/plain"] == (
        f"The GPU pool {POOL} was out of reach from 12:00:10 to 12:00:52: nothing was lost"
    )
    assert back.end(at(52)) == ""


def test_another_reason_is_the_same_outage_and_another_end() -> None:
    first = pool_outage.noticed(away(), None, at(10))
    second = pool_outage.noticed(away("Connection refused", 12), first, at(15))
    assert second == PoolOutage(POOL, "Connection refused", at(10), at(27))


def test_an_outage_after_a_return_is_a_new_one() -> None:
    first = pool_outage.noticed(away(), None, at(10))
    back = pool_outage.over(BackInReach("", "INFO", "", POOL, 5), first, at(15))
    assert pool_outage.noticed(away(), back, at(60)).since == at(60)


def test_a_return_of_which_the_beginning_was_not_seen_has_one_all_the_same() -> None:
    back = pool_outage.over(BackInReach("", "INFO", "", POOL, 42), None, at(52))
    assert back.headline(at(52)).startswith(f"The GPU pool {POOL} was out of reach from 12:00:10 to 12:00:52")


def test_without_an_end_none_is_shown() -> None:
    outage = pool_outage.noticed(away(ends_in_s=None), None, at(0))
    assert pool_outage.render(outage, at(1))["text/plain"].splitlines()[1:] == ["Cells go on running."]


def test_the_next_day_the_day_is_told() -> None:
    outage = pool_outage.noticed(away(), None, at(0))
    assert "since 2026-11-21 12:00:00" in outage.headline(at(86400))


def test_words_of_the_pool_are_no_html() -> None:
    outage = pool_outage.noticed(away("<script>"), None, at(0))
    html = pool_outage.render(outage, at(1))["text/html"]
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
