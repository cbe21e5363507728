"""What is answered before there is a kernel, what is held, and what a kernel is started for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.offline.replies import OfflineReplies

INFO = {"status": "ok", "banner": "hello"}
REPLIES = OfflineReplies(
    INFO,
    lambda content: {"history": [content]},
    lambda code: {"status": "complete", "code": code},
    "/tmp/prefix",
)


@pytest.mark.parametrize(
    ("message_type", "content", "reply"),
    [
        ("kernel_info_request", {}, INFO),
        ("history_request", {"n": 1}, {"history": [{"n": 1}]}),
        ("is_complete_request", {"code": "1"}, {"status": "complete", "code": "1"}),
        ("comm_info_request", {}, {"status": "ok", "comms": {}}),
        ("inspect_request", {"code": "x"}, {"status": "ok", "found": False, "data": {}, "metadata": {}}),
        (
            "complete_request",
            {"code": "abc", "cursor_pos": 2},
            {"status": "ok", "matches": [], "cursor_start": 2, "cursor_end": 2, "metadata": {}},
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
        ("create_subshell_request", {}),
        ("usage_request", {}),
        ("something_new", {}),
    ],
)
def test_every_other_request_is_held_until_somebody_runs_a_cell(
    message_type: str, content: dict[str, Any]
) -> None:
    assert REPLIES.reply(message_type, content) is None
    assert not REPLIES.needs_kernel(message_type)


def test_only_a_debugger_that_is_turned_on_needs_a_kernel() -> None:
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
