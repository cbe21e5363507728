"""What of a kernel's changes is told to whoever looks elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ext.server.kernel_notices import notices

NOW = 1_800_000_000.0
SIZE = {"text": "1 GPU × 50 %"}
NONE = {"state": "none", "granted_at": None, "lease": None, "request": {"text": "2 GPUs"}}
WAITING = {"state": "waiting", "granted_at": None, "request": SIZE}
RUNNING = {"state": "running", "granted_at": NOW, "waited_s": 64.0, "request": SIZE}
STARTING = {"state": "starting", "granted_at": None, "waited_s": None, "request": SIZE}
IDLE = {**RUNNING, "state": "idle"}
WANTED = {**IDLE, "waited_for_by": ["bob: y.ipynb (1 GPU)"]}
ENDING = {**IDLE, "idle_release_at": NOW + 110}

CASES: list[tuple[str, Any, Any, list[tuple[str, str]]]] = [
    ("the first look", None, RUNNING, []),
    ("gone", RUNNING, None, []),
    ("granted", WAITING, RUNNING, [("granted", "x.ipynb now has 1 GPU × 50 %.")]),
    ("starting", WAITING, STARTING, []),
    ("granted, told later", STARTING, RUNNING, [("granted", "x.ipynb now has 1 GPU × 50 %.")]),
    ("granted, told before", {**RUNNING, "state": "starting"}, RUNNING, []),
    ("granted at once", WAITING, {**RUNNING, "waited_s": 0.2}, []),
    ("cancelled", WAITING, NONE, []),
    ("idle", RUNNING, IDLE, []),
    ("ended", IDLE, NONE, [("lease_ended", "x.ipynb no longer holds a GPU; the next cell takes one.")]),
    (
        "ended over releasing",
        {**RUNNING, "state": "releasing"},
        NONE,
        [("lease_ended", "x.ipynb no longer holds a GPU; the next cell takes one.")],
    ),
    (
        "wanted",
        RUNNING,
        WANTED,
        [
            (
                "someone_waits",
                "x.ipynb is idle and holds 1 GPU × 50 %, for which others are waiting: bob: y.ipynb (1 GPU).",
            )
        ],
    ),
    ("still wanted", WANTED, {**WANTED, "waited_for_by": ["bob", "eve"]}, []),
    ("wanted while it computes", RUNNING, {**RUNNING, "waited_for_by": ["bob"]}, []),
    ("wanted by nobody known", RUNNING, {**IDLE, "waited_for_by": None}, []),
    (
        "ending soon",
        IDLE,
        ENDING,
        [
            (
                "idle_release_soon",
                "x.ipynb releases 1 GPU × 50 % in 2 min because no cell is running; keep it if you want to "
                "continue.",
            )
        ],
    ),
    ("still ending", ENDING, {**ENDING, "idle_release_at": NOW + 100}, []),
    ("ending later", IDLE, {**IDLE, "idle_release_at": NOW + 3600}, []),
    ("kept", ENDING, {**ENDING, "idle_release_at": NOW + 3600}, []),
]


@pytest.mark.parametrize(
    ("before", "after", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_change_is_told_once(before: Any, after: Any, told: list[tuple[str, str]]) -> None:
    assert [tuple(notice) for notice in notices(before, after, "x.ipynb", NOW)] == told


def test_names_of_others_are_one_line_and_few() -> None:
    after = {**IDLE, "waited_for_by": ["a\nb\x1b[31m", "c", "d", "e", 5]}
    ((_, message),) = notices(RUNNING, after, "x.ipynb", NOW)
    assert message.endswith("others are waiting: a b\\x1b[31m, c, d and 2 more.")
