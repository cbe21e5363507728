"""What is answered before there is a kernel, what waits, and what asks for the GPU."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.offline.replies import (
    Answer,
    Hold,
    HoldSilentCell,
    Interrupt,
    OfflineReplies,
    RunCell,
    RunCommands,
    Shutdown,
)

INFO = {"status": "ok", "banner": "hello"}
ROOM = OfflineReplies(
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
    decision = ROOM.decide(message_type, content)
    assert isinstance(decision, Answer)
    assert decision.content == reply


@pytest.mark.parametrize(
    ("message_type", "content", "kind"),
    [
        ("execute_request", {"code": "1"}, RunCell),
        ("execute_request", {"code": ""}, RunCell),
        ("execute_request", {}, RunCell),
        ("execute_request", {"code": "%bitfusion"}, RunCommands),
        ("execute_request", {"code": "%bitfusion", "silent": True}, HoldSilentCell),
        ("execute_request", {"code": "1", "silent": True}, HoldSilentCell),
        ("interrupt_request", {}, Interrupt),
        ("shutdown_request", {}, Shutdown),
        ("comm_open", {}, Hold),
        ("comm_msg", {}, Hold),
        ("input_reply", {}, Hold),
        ("create_subshell_request", {}, Hold),
        ("usage_request", {}, Hold),
        ("something_new", {}, Hold),
    ],
)
def test_what_is_done_with_every_other_message(
    message_type: str, content: dict[str, Any], kind: type
) -> None:
    assert type(ROOM.decide(message_type, content)) is kind


def test_only_a_debugger_that_is_turned_on_needs_a_kernel() -> None:
    asked = ROOM.decide("debug_request", {"command": "debugInfo", "seq": 7})
    assert isinstance(asked, Answer)
    assert (asked.content["request_seq"], asked.content["body"]["isStarted"]) == (7, False)
    assert asked.content["body"]["tmpFilePrefix"] == "/tmp/prefix/"
    turned_on = ROOM.decide("debug_request", {"command": "initialize"})
    assert isinstance(turned_on, Hold)
    assert turned_on.needs_kernel
    comm = ROOM.decide("comm_open", {})
    assert isinstance(comm, Hold)
    assert not comm.needs_kernel


@pytest.mark.parametrize("restart", [True, False])
def test_a_shutdown_says_whether_it_is_a_restart(restart: bool) -> None:
    decision = ROOM.decide("shutdown_request", {"restart": restart})
    assert isinstance(decision, Shutdown)
    assert decision.restart is restart


@given(
    st.text(max_size=20) | st.sampled_from(["execute_request", "complete_request", "debug_request"]),
    st.dictionaries(
        st.sampled_from(["code", "silent", "cursor_pos", "command", "seq", "restart"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=20)
        | st.lists(st.integers(), max_size=2),
    ),
)
def test_no_content_is_too_strange_to_decide(message_type: str, content: dict[str, Any]) -> None:
    assert ROOM.decide(message_type, content) is not None
