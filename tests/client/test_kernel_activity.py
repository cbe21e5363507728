"""What a kernel's state file may say, and what is made of everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kernel_state.activity import (
    UNKNOWN,
    KernelActivity,
    activity_from_json,
    activity_to_json,
)
from bitfusion_client.kernel_state.states import IDLE, STATES

NOW = 1000.0
SAID: dict[str, Any] = {
    "version": 1,
    "state": IDLE,
    "since": 900.0,
    "idle_since": 280,
    "notebook": "digits.ipynb",
    "of a later version": [],
}


@pytest.mark.parametrize(
    ("more", "activity", "text"),
    [
        ({}, KernelActivity(IDLE, 900.0, 280.0, "digits.ipynb"), "idle 12 min 00 s"),
        ({"idle_since": None}, KernelActivity(IDLE, 900.0, 900.0, "digits.ipynb"), "idle 1 min 40 s"),
        ({"state": "running"}, KernelActivity("running", 900.0, None, "digits.ipynb"), "running 1 min 40 s"),
        # its clock is before ours, or wrong
        ({"since": 1e9, "idle_since": 1e9}, KernelActivity(IDLE, NOW, NOW, "digits.ipynb"), "idle 0 s"),
        ({"notebook": ""}, KernelActivity(IDLE, 900.0, 280.0, ""), "idle 12 min 00 s"),
        ({"notebook": None}, KernelActivity(IDLE, 900.0, 280.0, ""), "idle 12 min 00 s"),
        ({"notebook": "a\n\x1b[2J│\ud800"}, KernelActivity(IDLE, 900.0, 280.0, "a \\x1b[2J│\\ud800"), None),
        ({"notebook": "x" * 1_000_000}, KernelActivity(IDLE, 900.0, 280.0, "x" * 59 + "…"), None),
    ],
)
def test_what_is_said_is_known(more: dict[str, Any], activity: KernelActivity, text: str | None) -> None:
    found = activity_from_json({**SAID, **more}, NOW)
    assert found == activity
    assert activity_from_json(activity_to_json(found), NOW) == found
    assert text in (None, found.text(NOW))


@pytest.mark.parametrize(
    "more",
    [
        {"version": 2},
        {"state": "sleeping"},
        {"state": None},
        {"state": []},
        {"since": None},
        {"since": "900"},
        {"since": True},
        {"since": -1},
        {"since": float("nan")},
        {"since": float("inf")},
        {"since": 10**400},
        {"idle_since": "280"},
        {"idle_since": float("nan")},
        {"notebook": 5},
        {"notebook": ["digits.ipynb"]},
    ],
    ids=str,
)
def test_what_nobody_can_know_is_not_known(more: dict[str, Any]) -> None:
    assert activity_from_json({**SAID, **more}, NOW) == UNKNOWN


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "version": st.just(1) | json_values,
            "state": st.sampled_from(STATES) | json_values,
            **dict.fromkeys(("since", "idle_since", "notebook"), json_values),
        },
    )
    | json_values
)
def test_anything_gives_one_printable_line_and_times_that_are_over(value: object) -> None:
    found = activity_from_json(value, NOW)
    assert found.state in ("", *STATES)
    assert found.notebook.isprintable()
    assert len(found.notebook) <= 60
    assert 0 <= found.since <= NOW
    assert (found.idle_since is not None) == (found.state == IDLE)
    assert found.text(NOW).isprintable()
    assert json.dumps(activity_to_json(found), allow_nan=False)
