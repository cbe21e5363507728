"""The limits of a namespace: its annotations, within what the administrator set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_device_plugin.identity.limits import KINDS, LimitRules, limits_text, namespace_limits

P = "bitfusion.io/limit-"
RULES = LimitRules(default=(("gpus", 1.0),), most=(("gpus", 4.0), ("share", 0.5)))


@pytest.mark.parametrize(
    ("annotations", "limits", "problems"),
    [
        ({}, {"gpus": 1, "share": 0.5}, ()),
        ({P + "gpus": "3"}, {"gpus": 3, "share": 0.5}, ()),
        ({P + "gpus": " 4 ", P + "leases": "2"}, {"gpus": 4, "share": 0.5, "leases": 2}, ()),
        ({P + "gpus": "5"}, {"gpus": 4, "share": 0.5}, (P + "gpus is 5, and at most 4 is allowed",)),
        ({P + "share": "1"}, {"gpus": 1, "share": 0.5}, (P + "share is 1, and at most 0.5 is allowed",)),
        (
            {P + "gpus": "-1"},
            {"gpus": 1, "share": 0.5},
            (P + 'gpus="-1" must be a whole number from 1 to 100000',),
        ),
        (
            {P + "share": "half"},
            {"gpus": 1, "share": 0.5},
            (P + 'share="half" must be above 0 and at most 1, such as 0.5',),
        ),
        (
            {P + "nodes": "1"},
            {"gpus": 1, "share": 0.5},
            (P + "nodes is not a limit; the limits are gpus, share, leases, waiting, units",),
        ),
    ],
)
def test_annotations_count_within_what_is_allowed(
    annotations: dict[str, str], limits: dict[str, float], problems: tuple[str, ...]
) -> None:
    assert namespace_limits(annotations, RULES) == (limits, problems)


KEY = "requests.bitfusion.io/gpu"
UNITS = LimitRules(default=(("units", 50.0),), most=(("units", 300.0),))


@pytest.mark.parametrize(
    ("rules", "quota", "annotation", "units", "problems"),
    [
        (LimitRules(), None, None, None, ()),
        (LimitRules(), 150, None, 150, ()),
        (LimitRules(), 0, None, 0, ()),  # nothing, which is another thing than no limit
        (LimitRules(), 150, "50", 50, ()),
        (LimitRules(), 150, "0", 0, ()),
        (LimitRules(), 150, "200", 150, (P + "units is 200, and at most 150 is allowed",)),
        (LimitRules(), 10_000_000, None, 10_000_000, ()),
        (LimitRules(), None, "150", 150, ()),
        (
            *(LimitRules(), 150, "all", 150),
            (P + 'units="all" must be a whole number from 0 to 10000000; 100 units are one GPU',),
        ),
        (UNITS, None, None, 50, ()),
        (UNITS, None, "400", 300, (P + "units is 400, and at most 300 is allowed",)),
        (UNITS, 200, None, 200, ()),  # a quota is no default: it may be more, and less
        (UNITS, 20, None, 20, ()),
        (UNITS, 500, None, 300, (f"the quota of {KEY} is 500, and the token's limit is at most 300",)),
        (UNITS, 0, "100", 0, (P + "units is 100, and at most 0 is allowed",)),
    ],
)
def test_the_limit_in_units_follows_from_the_quota(
    rules: LimitRules,
    quota: int | None,
    annotation: str | None,
    units: float | None,
    problems: tuple[str, ...],
) -> None:
    annotations = {} if annotation is None else {P + "units": annotation}
    limits, found = namespace_limits(annotations, rules, quota)
    assert (limits.get("units"), found) == (units, problems)


@given(st.dictionaries(st.sampled_from([P + kind for kind in KINDS]), st.text(max_size=12)))
def test_no_annotation_brings_more_than_the_most_or_takes_the_default_away(
    annotations: dict[str, str],
) -> None:
    limits, _ = namespace_limits(annotations, RULES)
    assert 1 <= limits["gpus"] <= 4
    assert 0 < limits["share"] <= 0.5


def test_limits_are_told_in_one_order() -> None:
    assert limits_text({"share": 0.5, "gpus": 2.0}) == "gpus 2, share 0.5"
    assert limits_text({}) == "none"
    assert limits_text({"units": 150.0, "gpus": 2.0}) == "gpus 2, units 150"
    assert limits_text({"units": 0.0}) == "units 0"
