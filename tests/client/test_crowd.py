"""Which connection goes where there are too many, and whose turn it is."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.listening.crowd import Crowd, source_of


def entered(crowd: Crowd[str], *names: str) -> list[str | None]:
    """Who goes for each: the first letter is where it comes from."""
    return [crowd.enter(name, name[0]) for name in names]


def test_a_crowd_pushes_out_its_own_oldest_and_nobody_elses() -> None:
    crowd: Crowd[str] = Crowd(4)
    assert entered(crowd, "a1", "b1", "b2", "b3") == [None] * 4
    assert entered(crowd, "b4", "b5", "c1") == ["b1", "b2", "b3"]
    assert sorted(crowd) == ["a1", "b4", "b5", "c1"]


def test_where_all_come_from_one_source_the_oldest_goes() -> None:
    crowd: Crowd[str] = Crowd(2)
    assert entered(crowd, "a1", "a2", "a3", "a4") == [None, None, "a1", "a2"]


def test_where_each_source_has_one_the_one_that_came_first_goes() -> None:
    assert entered(Crowd(2), "a1", "b1", "c1") == [None, None, "a1"]


def test_one_source_may_have_a_bound_of_its_own() -> None:
    crowd: Crowd[str] = Crowd(10, most_of_source=2)
    assert entered(crowd, "a1", "b1", "b2", "b3", "a2") == [None, None, None, "b1", None]


def test_who_comes_again_is_its_sources_newest() -> None:
    crowd: Crowd[str] = Crowd(2)
    entered(crowd, "a1", "a2")
    crowd.leave("a1", "a")
    assert entered(crowd, "a1", "a3") == [None, "a2"]


def test_who_has_left_does_not_count_and_may_leave_again() -> None:
    crowd: Crowd[str] = Crowd(1)
    entered(crowd, "a1")
    for _ in range(2):
        crowd.leave("a1", "a")
    assert (len(crowd), crowd.largest_source, crowd.give_up_one(), crowd.next_turn()) == (0, None, None, None)
    assert entered(crowd, "b1") == [None]


def test_sources_have_their_turns_one_after_another() -> None:
    crowd: Crowd[str] = Crowd(10)
    entered(crowd, "a1", "a2", "a3", "b1", "c1")
    assert [crowd.next_turn() for _ in range(3)] == ["a1", "b1", "c1"]
    entered(crowd, "b2")
    assert [crowd.next_turn() for _ in range(4)] == ["a2", "b2", "a3", None]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.booleans())), st.integers(1, 8), st.integers(1, 8))
def test_never_are_there_more_and_who_has_least_is_not_asked_to_go(
    steps: list[tuple[str, bool]], most: int, of_source: int
) -> None:
    crowd: Crowd[tuple[str, int]] = Crowd(most, of_source)
    there: list[tuple[str, int]] = []  # the oldest first
    for number, (source, stays) in enumerate(steps):
        gone = crowd.enter((source, number), source)
        there.append((source, number))
        if gone is not None:
            has = Counter(name for name, _ in there)
            assert has[gone[0]] > of_source or has[gone[0]] == max(has.values())
            assert gone == next(one for one in there if one[0] == gone[0])
            there.remove(gone)
        if not stays and (source, number) in there:
            crowd.leave((source, number), source)
            there.remove((source, number))
        assert sorted(crowd) == sorted(there)
        assert len(crowd) == len(there) <= most


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_what_counts_as_one_machine(host: str, source: str) -> None:
    assert source_of(host) == source
