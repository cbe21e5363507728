"""What ResourceQuotas say of a namespace's units, and which of them say nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_device_plugin.identity.quotas import NamespaceQuotas, QuotaRecord, quota_record

KEY = "requests.bitfusion.io/gpu"


def quota(hard: object, **spec: object) -> dict[str, Any]:
    return {"metadata": {"namespace": "team-a", "name": "gpus"}, "spec": {"hard": hard, **spec}}


@pytest.mark.parametrize(
    ("raw", "units"),
    [
        (quota({KEY: "150"}), 150),
        (quota({KEY: 150}), 150),
        (quota({KEY: "0"}), 0),
        (quota({KEY: "5k"}), 5000),
        (quota({KEY: "1e2"}), 100),
        (quota({KEY: "1500m"}), 1),  # half a unit more lets no pod in
        (quota({KEY: "1E"}), 10_000_000),
        (quota({KEY: "-5"}), 0),
        (quota({KEY: "150", "pods": "3"}), 150),
        (quota({KEY: "150"}, scopes=[]), 150),
        # these say nothing of what all pods may ask for
        (quota({"pods": "3"}), None),
        (quota({"limits.bitfusion.io/gpu": "1", "bitfusion.io/gpu": "1"}), None),
        (quota({KEY: "150"}, scopes=["NotTerminating"]), None),
        (quota({KEY: "0"}, scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass"}]}), None),
        (quota({KEY: "many"}), None),
        (quota(None), None),
        ({"metadata": {"name": "gpus"}, "spec": {"hard": {KEY: "1"}}}, None),
    ],
)
def test_a_quota_says_how_many_units_all_pods_may_ask_for(raw: dict[str, Any], units: int | None) -> None:
    found = quota_record(raw)
    assert (None if found is None else found.units) == units


def test_of_a_quota_that_limits_nothing_the_keys_are_kept() -> None:
    hard = {"limits.bitfusion.io/gpu": "1", "bitfusion.io/gpu": "1"}
    keys = ("bitfusion.io/gpu", "limits.bitfusion.io/gpu")
    assert quota_record(quota(hard)) == QuotaRecord("team-a", "gpus", None, keys)
    assert quota_record(quota({**hard, KEY: "150"})) == QuotaRecord("team-a", "gpus", 150, keys)
    assert quota_record(quota(hard, scopes=["NotTerminating"])) == QuotaRecord("team-a", "gpus", None, keys)
    assert quota_record(quota({"pods": "3"})) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {
            "metadata": json_values | st.just({"namespace": "a", "name": "b"}),
            "spec": json_values
            | st.fixed_dictionaries({"hard": json_values | st.dictionaries(st.just(KEY), json_values)}),
        }
    )
)
def test_nothing_that_an_api_server_sends_is_a_crash(raw: dict[str, Any]) -> None:
    found = quota_record(raw)
    assert found is None or found.units is None or 0 <= found.units <= 10_000_000


def test_the_smallest_of_a_namespaces_quotas_holds_and_every_change_is_told() -> None:
    told: list[str] = []
    quotas = NamespaceQuotas(told.append)
    assert quotas.units("a") is None
    quotas.cache.replace(
        {("a", "one"): QuotaRecord("a", "one", 200), ("b", "one"): QuotaRecord("b", "one", 0)}
    )
    quotas.cache.put(QuotaRecord("a", "two", 150))
    assert (quotas.units("a"), quotas.units("b"), quotas.units("c")) == (150, 0, None)
    assert told == ["a", "b", "a"]
    quotas.cache.put(QuotaRecord("a", "two", 150))  # what it says of what is used is no change
    assert told == ["a", "b", "a"]
    quotas.cache.remove(("a", "two"))
    assert (quotas.units("a"), told[3:]) == (200, ["a"])


def test_a_quota_that_limits_nothing_is_no_limit() -> None:
    changed: list[str] = []
    every: list[tuple[QuotaRecord | None, QuotaRecord | None]] = []
    quotas = NamespaceQuotas(changed.append, lambda old, new: every.append((old, new)))
    wrong = QuotaRecord("a", "one", None, ("bitfusion.io/gpu",))
    quotas.cache.put(wrong)
    assert (quotas.units("a"), changed, every) == (None, [], [(None, wrong)])
    quotas.cache.put(QuotaRecord("a", "one", 150, ("bitfusion.io/gpu",)))
    quotas.cache.put(QuotaRecord("a", "one", 150))
    assert (quotas.units("a"), changed) == (150, ["a"])
    quotas.cache.remove(("a", "one"))
    assert (quotas.units("a"), changed, len(every)) == (None, ["a", "a"], 4)
