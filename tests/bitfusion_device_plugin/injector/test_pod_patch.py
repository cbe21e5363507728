"""The difference of two objects as a JSON patch, applied by somebody else's code."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfusion_device_plugin.injector.injection.pod_patch import difference

ISTIO, OURS, OTHER = ({"name": name, "image": name} for name in ("istio", "ours", "other"))


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": None}, {"a": {"b": "c"}}, [{"op": "add", "path": "/a", "value": {"b": "c"}}]),
        ({"a": {"x/y~": 1}}, {"a": {}}, [{"op": "remove", "path": "/a/x~1y~0"}]),
        ({"a": [ISTIO]}, {"a": [OURS, ISTIO]}, [{"op": "add", "path": "/a/0", "value": OURS}]),
        (
            {"a": [ISTIO, OURS, OTHER]},
            {"a": [OURS, ISTIO, OTHER]},
            [{"op": "remove", "path": "/a/1"}, {"op": "add", "path": "/a/0", "value": OURS}],
        ),
        ({"a": [ISTIO, OURS]}, {"a": [OURS]}, [{"op": "remove", "path": "/a/0"}]),
        (
            {"a": [ISTIO, OTHER]},
            {"a": [OURS, ISTIO, {**OTHER, "image": "x"}]},
            [
                {"op": "add", "path": "/a/0", "value": OURS},
                {"op": "replace", "path": "/a/2/image", "value": "x"},
            ],
        ),
        ({"a": ["x", "y"]}, {"a": ["z", "x"]}, [{"op": "replace", "path": "/a", "value": ["z", "x"]}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
    ],
)
def test_one_operation_for_each_change(old: Any, new: Any, patch: list[dict[str, Any]]) -> None:
    assert difference(old, new) == patch
    assert jsonpatch.apply_patch(old, patch) == new


NAMES = st.sampled_from(["", "a", "b", "a/b", "~"])
ITEMS = st.dictionaries(st.sampled_from(["name", "mountPath", "x"]), NAMES, max_size=3)
VALUES = st.recursive(
    st.none() | NAMES | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(ITEMS, max_size=6) | st.dictionaries(NAMES, inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=50)
@given(old=st.dictionaries(NAMES, VALUES, max_size=4), new=st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_patch_makes_the_one_of_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = copy.deepcopy((old, new))
    patch = difference(old, new)
    assert (old, new) == before
    assert jsonpatch.apply_patch(old, copy.deepcopy(patch)) == new
    assert difference(new, copy.deepcopy(new)) == []
