"""Who holds what over time: sums, and the bounds that no client can break."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pool.ledger.entries import FIRST_TOKEN_NAME, HELD, WAITING
from bitfusion_pool.service.monitoring.holder_usage import (
    EVERYBODY,
    KEPT_S,
    OTHERS,
    TOKENS,
    USERS,
    HolderUsage,
    Row,
    Seen,
    SeriesKey,
)

MNIST = SeriesKey("cluster/team-a", "team-a", "mnist")


def seen(
    entry_id: str = "1",
    gpus: float = 0.5,
    state: str = HELD,
    user: str = "cluster/team-a",
    host: str = "team-a/mnist",
    waited: float = 0.0,
    local: bool = False,
    idle_since: float | None = None,
) -> Seen:
    uid = 1000 if local else FIRST_TOKEN_NAME
    if state != HELD:
        return Seen(entry_id, state, user, host, uid, 0.0, 100.0, None)
    return Seen(entry_id, state, user, host, uid, gpus, 100.0, 100.0 + waited, idle_since)


def row(usage: HolderUsage, now: float, key: SeriesKey = MNIST) -> Row:
    (found,) = [one for one in usage.rows(now) if one.key == key]
    return found


def test_gpu_seconds_grow_while_a_lease_lives_and_stay_after_it() -> None:
    usage = HolderUsage(TOKENS, 0.0)
    usage.update([], 0.0)
    usage.update([seen(), seen("2", 1.0)], 10.0)
    assert row(usage, 14.0) == Row(MNIST, 1.5, 0, 6.0, 2, 0.0)
    usage.update([seen()], 20.0)
    assert row(usage, 20.0) == Row(MNIST, 0.5, 0, 15.0, 2, 0.0)
    usage.update([], 24.0)
    assert row(usage, 1000.0) == Row(MNIST, 0.0, 0, 17.0, 2, 0.0)
    assert usage.all_gpu_seconds(1000.0) == 17.0


def test_gpus_of_idle_kernels_are_counted_from_the_moment_that_it_is_told() -> None:
    usage = HolderUsage(TOKENS, 0.0)
    usage.update([seen("1", 0.1), seen("2", 0.2, waited=5.0), seen("3", 0.7, idle_since=90.0)], 0.0)
    usage.activity("1", 80.0, 10.0)
    usage.activity("2", 95.0, 10.0)
    found = row(usage, 20.0)
    assert found.idle_gpus == pytest.approx(1.0)
    assert found.idle_gpu_seconds == pytest.approx(17.0)
    assert (found.since_timestamp_seconds, found.idle_since_timestamp_seconds) == (100.0, 80.0)
    for entry_id in ("1", "2", "3", "gone"):
        usage.activity(entry_id, None, 20.0)
    found = row(usage, 30.0)
    assert (found.idle_gpus, found.idle_since_timestamp_seconds) == (0.0, None)
    assert found.idle_gpu_seconds == pytest.approx(17.0)
    usage.update([], 40.0)
    assert row(usage, 50.0).since_timestamp_seconds is None


def test_who_waits_is_counted_and_its_wait_once_it_is_granted() -> None:
    usage = HolderUsage(TOKENS, 0.0)
    usage.update([seen(state=WAITING), seen("2", state=WAITING)], 0.0)
    assert row(usage, 30.0) == Row(MNIST, 0.0, 2, 0.0, 0, 0.0)
    usage.update([seen(waited=30.0), seen("2", state=WAITING)], 30.0)
    usage.update([seen(waited=30.0)], 31.0)
    assert row(usage, 31.0) == Row(MNIST, 0.5, 0, 0.5, 1, 30.0)


def test_leases_from_before_the_service_are_no_new_grants() -> None:
    usage = HolderUsage(TOKENS, 0.0)
    usage.update([seen(waited=5.0)], 0.0)
    assert row(usage, 2.0) == Row(MNIST, 0.5, 0, 1.0, 0, 0.0)


def test_users_of_the_machine_are_told_apart_only_where_that_is_wanted() -> None:
    entries = [seen("1", user="ada", host="box", local=True), seen("2", user="bob", host="box", local=True)]
    for which, keys in ((TOKENS, {SeriesKey(USERS)}), (EVERYBODY, {SeriesKey("ada"), SeriesKey("bob")})):
        usage = HolderUsage(which, 0.0)
        usage.update(entries, 0.0)
        assert {one.key for one in usage.rows(0.0)} == keys


def test_one_holder_has_a_bounded_number_of_notebooks_whatever_its_client_says() -> None:
    usage = HolderUsage(TOKENS, 0.0, most_notebooks=3)
    for number in range(50):
        usage.update([seen(str(number), host=f"team-a/n{number}")], float(number))
    usage.update([seen("b", user="cluster/team-b", host="team-b/x")], 50.0)
    found = {one.key: one.gpu_seconds for one in usage.rows(50.0)}
    rest = SeriesKey("cluster/team-a", "team-a", OTHERS)
    assert found == {
        **{MNIST._replace(notebook=f"n{number}"): 0.5 for number in range(3)},
        rest: 23.5,
        SeriesKey("cluster/team-b", "team-b", "x"): 0.0,
    }


def test_all_holders_together_have_a_bounded_number_of_series() -> None:
    usage = HolderUsage(TOKENS, 0.0, most_series=5)
    usage.update([seen(str(n), user=f"cluster/t{n}", host="laptop") for n in range(9)], 0.0)
    found = {one.key: one.gpus for one in usage.rows(1.0)}
    assert len(found) == 6
    assert found[SeriesKey(OTHERS)] == 2.0
    assert usage.all_gpu_seconds(1.0) == 4.5


def test_a_holder_long_gone_makes_room_and_the_sum_of_all_remembers_it() -> None:
    usage = HolderUsage(TOKENS, 0.0, most_series=1, most_notebooks=1)
    usage.update([seen()], 0.0)
    usage.update([], 10.0)
    assert [one.key for one in usage.rows(10.0 + KEPT_S)] == [MNIST]
    assert usage.rows(11.0 + KEPT_S) == []
    usage.update([seen("2", host="team-a/next")], 11.0 + KEPT_S)
    assert [one.key.notebook for one in usage.rows(11.0 + KEPT_S)] == ["next"]
    assert usage.all_gpu_seconds(11.0 + KEPT_S) == 5.0


def test_a_lease_of_days_keeps_its_series_without_any_change_of_the_ledger() -> None:
    usage = HolderUsage(TOKENS, 0.0)
    usage.update([seen(gpus=1.0)], 0.0)
    assert row(usage, 10 * KEPT_S).gpu_seconds == 10 * KEPT_S
    usage.update([seen(gpus=1.0)], 11 * KEPT_S)
    assert row(usage, 11 * KEPT_S).gpu_seconds == 11 * KEPT_S


ENTRIES = st.lists(
    st.builds(
        seen,
        entry_id=st.sampled_from("abcdef"),
        gpus=st.sampled_from([0.25, 0.5, 1.0]),
        state=st.sampled_from([HELD, WAITING]),
        user=st.sampled_from(["cluster/a", "cluster/b", "ada"]),
        host=st.sampled_from(["a/x", "a/y", "b/x", "a/" + "z" * 60, "laptop"]),
    ),
    max_size=6,
    unique_by=lambda one: one.entry_id,
)


@given(st.lists(st.tuples(ENTRIES, st.sampled_from([0.0, 1.0, 5.0, KEPT_S, 2 * KEPT_S])), max_size=12))
def test_counters_never_fall_and_nothing_is_lost(steps: list[tuple[list[Seen], float]]) -> None:
    usage = HolderUsage(TOKENS, 0.0, most_series=3, most_notebooks=2)
    now, expected, held = 0.0, 0.0, 0.0
    for entries, pause in steps:
        now += pause
        expected += held * pause
        usage.update(entries, now)
        held = sum(one.gpus for one in entries)
        rows = usage.rows(now)
        assert len(rows) <= 4
        assert len({one.key for one in rows}) == len(rows)
        assert sum(one.gpus for one in rows) == held
        assert sum(one.waiting for one in rows) == sum(one.state == WAITING for one in entries)
        assert usage.all_gpu_seconds(now) == expected
