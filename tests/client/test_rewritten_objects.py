"""Two states of an object are compared by what they mean: Go programs spell amounts anew."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.rewritten_objects import quantity_meaning, same_meaning

SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "nb",
            "image": "team/nb:1",
            "env": [{"name": "N", "value": "1"}],
            "resources": {"limits": {"cpu": 1, "memory": "1024Mi"}, "requests": {"cpu": 0.5}},
        }
    ],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}}],
}


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, "1"), (0.5, "500m"), ("1024Mi", "1Gi"), ("1e3", "1k"), ("0.1", "100m"), ("2.0", 2), ("-1", -1)],
)
def test_spellings_of_one_amount_mean_the_same(one: object, other: object) -> None:
    assert quantity_meaning(one) == quantity_meaning(other)


@pytest.mark.parametrize(
    ("one", "other"), [("1G", "1Gi"), ("1", "1m"), ("two", "2"), (True, 1), ("", "0"), (None, "0")]
)
def test_other_amounts_mean_something_else(one: object, other: object) -> None:
    assert quantity_meaning(one) != quantity_meaning(other)


def rewritten() -> dict[str, Any]:
    """As a Go program puts it back."""
    spec = copy.deepcopy(SPEC)
    resources = spec["containers"][0]["resources"]
    resources["limits"] = {"cpu": "1", "memory": "1Gi"}
    resources["requests"] = {"cpu": "500m"}
    spec["volumes"][0]["emptyDir"]["sizeLimit"] = "1Gi"
    spec |= {"securityContext": {}, "initContainers": None, "serviceAccountName": "", "tolerations": []}
    return spec


def test_a_spec_that_was_spelled_anew_means_the_same() -> None:
    assert rewritten() != SPEC
    assert same_meaning(SPEC, rewritten())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("containers", 0, "image"), "team/nb:2"),
        (("containers", 0, "resources", "limits", "cpu"), "2"),
        (("containers", 0, "resources", "requests", "cpu"), "501m"),
        (("containers", 0, "env", 0, "value"), "1.0"),  # no quantity: text
        (("containers", 0, "env", 0, "value"), 1),
        (("volumes", 0, "emptyDir", "sizeLimit"), "1G"),
        (("serviceAccountName",), "runner"),
    ],
)
def test_whatever_else_differs_counts(path: tuple[Any, ...], value: object) -> None:
    spec: Any = rewritten()
    *parents, last = path
    here = spec
    for key in parents:
        here = here[key]
    here[last] = value
    assert not same_meaning(SPEC, spec)


def test_a_container_more_or_elsewhere_counts() -> None:
    two = copy.deepcopy(SPEC)
    two["containers"].append({"name": "side"})
    turned = copy.deepcopy(two)
    turned["containers"].reverse()
    assert not same_meaning(SPEC, two)
    assert not same_meaning(two, turned)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_anything_means_the_same_as_itself(value: object) -> None:
    assert same_meaning(value, copy.deepcopy(value))
