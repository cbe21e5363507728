"""JSON patches of maps: one operation for each key."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_cluster.api.json_patch import NotAMap, map_patch, maps_patch, pointer


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((), ""),
        (("metadata", "annotations"), "/metadata/annotations"),
        (("auto-management/bitfusion",), "/auto-management~1bitfusion"),
        (("a~b/c", "~1"), "/a~0b~1c/~01"),
        (("",), "/"),
        (("containers", 0, "ü"), "/containers/0/ü"),
    ],
)
def test_pointers(keys: tuple[Any, ...], text: str) -> None:
    assert pointer(*keys) == text


@pytest.mark.parametrize(
    ("current", "set_", "removed", "operations"),
    [
        (None, {}, (), []),
        (None, {}, ("a",), []),
        (
            None,
            {"b": "2", "a/x": "1"},
            (),
            [
                {"op": "add", "path": "/m", "value": {}},
                {"op": "add", "path": "/m/a~1x", "value": "1"},
                {"op": "add", "path": "/m/b", "value": "2"},
            ],
        ),
        ({}, {"a": "1"}, (), [{"op": "add", "path": "/m/a", "value": "1"}]),
        # what is already so needs no operation; add also replaces
        ({"a": "1", "b": "old"}, {"a": "1", "b": "2"}, (), [{"op": "add", "path": "/m/b", "value": "2"}]),
        (
            {"a": "1", "c": "3", "z": "9"},
            {"a": "2"},
            ("z", "absent", "c"),
            [
                {"op": "add", "path": "/m/a", "value": "2"},
                {"op": "remove", "path": "/m/c"},
                {"op": "remove", "path": "/m/z"},
            ],
        ),
        # what is set is not removed
        ({"a": "1"}, {"a": "2"}, ("a",), [{"op": "add", "path": "/m/a", "value": "2"}]),
        # null is no value
        ({"a": None}, {"a": "1"}, (), [{"op": "add", "path": "/m/a", "value": "1"}]),
    ],
)
def test_one_operation_a_key_in_a_fixed_order(
    current: dict[str, Any] | None, set_: dict[str, Any], removed: tuple[Any, ...], operations: list[Any]
) -> None:
    assert map_patch("/m", current, set_, removed) == operations


@pytest.mark.parametrize(
    ("document", "operations"),
    [
        ({"a": {"b": {"c": 1}}}, []),
        ({"a": {"b": {}}}, []),
        ({"a": {}}, [{"op": "add", "path": "/a/b", "value": {}}]),
        (
            {"a": None, "x": 1},
            [{"op": "add", "path": "/a", "value": {}}, {"op": "add", "path": "/a/b", "value": {}}],
        ),
    ],
)
def test_absent_parents_are_made(document: dict[str, Any], operations: list[Any]) -> None:
    assert maps_patch(document, "a", "b") == operations


@pytest.mark.parametrize("other", [[], "text", 0, True])
def test_something_else_in_the_place_of_a_map_is_never_replaced(other: Any) -> None:
    with pytest.raises(NotAMap, match="/a/b is not a map"):
        maps_patch({"a": {"b": other}}, "a", "b", "c")
    with pytest.raises(NotAMap, match="/m is not a map"):
        map_patch("/m", other, {"a": "1"})


MAPS = st.dictionaries(st.text(st.sampled_from("ab~/01ü "), max_size=4), st.text(max_size=3), max_size=5)


@given(st.none() | MAPS, MAPS, st.lists(st.text(st.sampled_from("ab~/01ü "), max_size=4), max_size=4))
def test_an_independent_applier_makes_the_same_map(current: Any, set_: Any, removed: Any) -> None:
    document = {} if current is None else {"m": current}
    before = copy.deepcopy(document)
    operations = map_patch("/m", current, set_, removed)
    assert document == before
    after = jsonpatch.apply_patch(document, operations)
    wanted = {
        **{key: value for key, value in (current or {}).items() if key not in removed},
        **set_,
    }
    assert after.get("m", {}) == wanted
    assert ("m" in after) == (current is not None or bool(set_))
    assert map_patch("/m", after.get("m"), set_, removed) == []
