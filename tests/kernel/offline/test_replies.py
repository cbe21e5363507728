"""What is answered before there is a kernel, what is held, and what a kernel is started for."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.offline.early_subshells import MOST, EarlySubshells
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.protocol.wire import Wire

INFO = {"status": "ok", "banner": "hello", "supported_features": ["debugger", "kernel subshells"]}


def _replies(info: dict[str, Any]) -> OfflineReplies:
    return OfflineReplies(
        info,
        "python",
        ["--HistoryManager.hist_file=:memory:"],
        "/tmp/prefix",
        EarlySubshells(Wire(b"")),
    )


REPLIES = _replies(INFO)


@pytest.mark.parametrize(
    ("message_type", "content", "reply"),
    [
        ("kernel_info_request", {}, INFO),
        ("history_request", {"n": 1}, {"status": "ok", "history": []}),
        ("is_complete_request", {"code": "1"}, {"status": "complete"}),
        ("comm_info_request", {}, {"status": "ok", "comms": {}}),
        ("inspect_request", {"code": "x"}, {"status": "ok", "found": False, "data": {}, "metadata": {}}),
        (
            "complete_request",
            {"code": "abc", "cursor_pos": 2},
            {"status": "ok", "matches": [], "cursor_start": 2, "cursor_end": 2, "metadata": {}},
        ),
        (
            "complete_request",
            {"code": "abc", "cursor_pos": None},
            {"status": "ok", "matches": [], "cursor_start": 3, "cursor_end": 3, "metadata": {}},
        ),
        (
            "complete_request",
            {"code": "%bitfusion acq"},
            {"status": "ok", "matches": ["acquire"], "cursor_start": 11, "cursor_end": 14, "metadata": {}},
        ),
        (
            "complete_request",
            {"code": "abc"},
            {"status": "ok", "matches": [], "cursor_start": 3, "cursor_end": 3, "metadata": {}},
        ),
    ],
)
def test_what_has_an_honest_answer_is_answered(
    message_type: str, content: dict[str, Any], reply: dict[str, Any]
) -> None:
    assert REPLIES.reply(message_type, content) == reply


@pytest.mark.parametrize(
    ("message_type", "content"),
    [
        ("execute_request", {"code": "1"}),
        ("execute_request", {}),
        ("comm_open", {}),
        ("comm_msg", {}),
        ("input_reply", {}),
        ("something_new", {}),
    ],
)
def test_every_other_request_is_held_until_somebody_runs_a_cell(
    message_type: str, content: dict[str, Any]
) -> None:
    assert REPLIES.reply(message_type, content) is None
    assert not REPLIES.needs_kernel(message_type)


def test_subshells_are_created_listed_and_deleted_as_by_ipykernel() -> None:
    """Replies and the error's text are those of ipykernel 7.4."""
    replies = _replies(INFO)
    assert replies.reply("list_subshell_request", {}) == {"status": "ok", "subshell_id": []}
    created = replies.reply("create_subshell_request", {})
    assert created is not None
    assert created == {"status": "ok", "subshell_id": str(UUID(created["subshell_id"], version=4))}
    ids = {"subshell_id": created["subshell_id"]}
    assert replies.reply("list_subshell_request", {}) == {"status": "ok", "subshell_id": [*ids.values()]}
    assert replies.reply("delete_subshell_request", ids) == {"status": "ok"}
    assert replies.reply("list_subshell_request", {}) == {"status": "ok", "subshell_id": []}


def test_subshells_without_a_kernel_have_a_bound() -> None:
    replies = _replies(INFO)
    created = [replies.reply("create_subshell_request", {}) for _ in range(MOST)]
    assert all(reply is not None and reply["status"] == "ok" for reply in created)
    refused = replies.reply("create_subshell_request", {})
    assert refused == {"status": "error", "evalue": "at most 100 subshells before the kernel has started"}


@pytest.mark.parametrize("unknown", ["abc", "", None, 3, [], {}])
def test_a_subshell_that_was_never_created_is_not_deleted(unknown: object) -> None:
    deleted = REPLIES.reply("delete_subshell_request", {"subshell_id": unknown})
    assert deleted == {"status": "error", "evalue": f"Unknown subshell_id {unknown!r}"}


@pytest.mark.parametrize("features", [None, [], ["debugger"], 3, "kernel subshells"])
def test_a_kernel_without_subshells_is_left_to_say_so(features: object) -> None:
    replies = _replies({"supported_features": features})
    for kind in ("create", "list", "delete"):
        assert replies.reply(f"{kind}_subshell_request", {}) is None
        assert not replies.needs_kernel(f"{kind}_subshell_request")


def test_a_debugger_that_is_turned_on_needs_a_kernel() -> None:
    asked = REPLIES.reply("debug_request", {"command": "debugInfo", "seq": 7})
    assert asked is not None
    assert (asked["request_seq"], asked["body"]["isStarted"]) == (7, False)
    assert asked["body"]["tmpFilePrefix"] == "/tmp/prefix/"
    assert REPLIES.reply("debug_request", {"command": "initialize"}) is None
    assert REPLIES.needs_kernel("debug_request")


@given(
    st.text(max_size=20) | st.sampled_from(["is_complete_request", "complete_request", "debug_request"]),
    st.dictionaries(
        st.sampled_from(["code", "silent", "cursor_pos", "command", "seq", "restart"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=20)
        | st.lists(st.integers(), max_size=2),
    ),
)
def test_no_content_is_too_strange(message_type: str, content: dict[str, Any]) -> None:
    reply = REPLIES.reply(message_type, content)
    assert reply is None or isinstance(reply, dict)
