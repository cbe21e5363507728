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
            (P + "nodes is no limit; limits are gpus, share, leases, waiting",),
        ),
    ],
)
def test_annotations_count_within_what_is_allowed(
    annotations: dict[str, str], limits: dict[str, float], problems: tuple[str, ...]
) -> None:
    assert namespace_limits(annotations, RULES) == (limits, problems)


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
