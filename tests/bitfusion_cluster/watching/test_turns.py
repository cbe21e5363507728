"""Turns by namespace: who comes next, and that nobody waits for the thousands of another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_cluster.watching.turns import Turns, by_turns

Item = tuple[str, int]


def order(names: str) -> str:
    """By turns of letters, of which each is an item of its own namespace."""
    return "".join(by_turns(names, str.lower))


@pytest.mark.parametrize(
    ("items", "ordered"),
    [("", ""), ("aAa", "aAa"), ("aaab", "abaa"), ("aabbc", "abcab"), ("baaaB", "baBaa")],
)
def test_each_has_one_and_then_each_has_another(items: str, ordered: str) -> None:
    assert order(items) == ordered


def test_who_comes_late_waits_for_one_of_each_other() -> None:
    turns: Turns[Item] = Turns()
    for number in range(1000):
        turns.append("a", ("a", number))
        turns.append("b", ("b", number))
    assert turns.popleft() == ("a", 0)
    turns.append("c", ("c", 0))
    assert [turns.popleft() for _ in range(3)] == [("b", 0), ("a", 1), ("c", 0)]
    assert len(turns) == 1997


def test_more_than_fit_push_out_the_oldest_of_their_own() -> None:
    turns: Turns[Item] = Turns(most=2)
    for item in (("a", 1), ("b", 1), ("a", 2), ("a", 3)):
        turns.append(item[0], item)
    assert [turns.popleft() for _ in range(len(turns))] == [("a", 2), ("b", 1), ("a", 3)]
    with pytest.raises(LookupError):
        turns.popleft()


items = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 99)))


@given(items)
def test_nothing_is_lost_and_each_namespace_keeps_its_order(given_items: list[Item]) -> None:
    found = list(by_turns(given_items, lambda item: item[0]))
    assert sorted(found) == sorted(given_items)
    for namespace in "abcd":
        assert [item for item in found if item[0] == namespace] == [
            item for item in given_items if item[0] == namespace
        ]


@given(items)
def test_an_item_waits_for_as_many_of_another_namespace_as_its_own_has_before_it_and_one_more(
    given_items: list[Item],
) -> None:
    found = [namespace for namespace, _ in by_turns(given_items, lambda item: item[0])]
    for index, namespace in enumerate(found):
        before = found[:index]
        assert all(before.count(other) <= before.count(namespace) + 1 for other in set(before))
