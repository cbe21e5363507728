"""The messages between proxy, supervisor and launcher: to a line and back, and lines that are none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.processes import messages
from bitfusion_kernel.processes.messages import (
    InvalidMessage,
    KernelExitedEvent,
    LaunchedEvent,
    Message,
    OutputEvent,
    StartCommand,
    StartedEvent,
    StopCommand,
    StoppedEvent,
    WatchCommand,
    WorkingEvent,
    WrapperExitedEvent,
    parse,
)

# As os.environ has bytes that are no UTF-8.
text = st.text(st.characters(exclude_categories=()), max_size=20)
number = st.integers(-(2**31), 2**31)
environment = st.dictionaries(text, text, max_size=3)

any_message: st.SearchStrategy[Message] = st.one_of(
    st.builds(StartCommand, number, st.lists(text, min_size=1, max_size=3), environment, text),
    st.builds(WatchCommand, st.floats(allow_nan=False)),
    st.builds(StopCommand),
    st.builds(StartedEvent, number),
    st.builds(OutputEvent, st.sampled_from(["stdout", "stderr"]), text),
    st.builds(LaunchedEvent, number, number, environment, text),
    st.builds(WorkingEvent, st.floats(allow_nan=False), number),
    st.builds(KernelExitedEvent, number),
    st.builds(WrapperExitedEvent, number, number),
    st.builds(StoppedEvent),
)


@given(any_message)
def test_every_message_comes_back_from_its_line(message: Message) -> None:
    line = message.format()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse(line) == message


def test_every_type_has_its_own_name_on_the_wire() -> None:
    names = [message.TYPE for message in messages.MESSAGES]
    assert all(names)
    assert len(set(names)) == len(names)


def test_the_lines_are_these() -> None:
    assert StopCommand().format() == b'{"type": "stop", "spares": false}\n'
    assert WrapperExitedEvent(2, -9).format() == b'{"type": "wrapper_exited", "number": 2, "status": -9}\n'


def test_messages_differ_by_type_and_by_each_field() -> None:
    assert WrapperExitedEvent(1, 2) == WrapperExitedEvent(1, 2)
    assert WrapperExitedEvent(1, 2) != WrapperExitedEvent(1, 3)
    stop: Message = StopCommand()
    assert stop != StoppedEvent()
    assert repr(WrapperExitedEvent(1, -9)) == "WrapperExitedEvent(number=1, status=-9)"


def test_an_unknown_type_is_none_and_an_unknown_field_is_passed_over() -> None:
    assert parse(b'{"type": "of tomorrow", "x": 1}') is None
    assert parse(b'{"type": "stop", "x": 1}') == StopCommand()


def test_a_field_that_an_older_sender_did_not_know_has_its_default() -> None:
    line = b'{"type": "launched", "launcher_pid": 1, "kernel_pid": 2, "environment": {}}'
    assert parse(line) == LaunchedEvent(1, 2, {}, pid_space="")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"", "it is not JSON"),
        (b"rubbish", "it is not JSON"),
        (b"\xff", "it is not UTF-8"),
        (b"[" * 100_000, "it is not JSON"),
        (b"null", "it is not a JSON object"),
        (b"[]", "it is not a JSON object"),
        (b"{}", 'it has no "type"'),
        (b'{"type": 1}', 'it has no "type"'),
        (b'{"type": "started"}', "started: pid is missing"),
        (b'{"type": "started", "pid": "7"}', 'started: pid is "7" and must be a whole number'),
        (b'{"type": "started", "pid": true}', 'started: pid is "true" and must be'),
        (b'{"type": "output", "stream": "stdout"}', "output: text is missing"),
        (b'{"type": "launched", "launcher_pid": 1, "kernel_pid": 2, "environment": []}', "environment"),
        (b'{"type": "launched", "launcher_pid": 1, "kernel_pid": 2, "environment": {"a": 1}}', "environment"),
        (b'{"type": "start", "number": 1, "argv": [], "environment": {}, "socket_path": "s"}', "argv"),
        (b'{"type": "start", "number": 1, "argv": [1], "environment": {}, "socket_path": "s"}', "argv"),
        (
            b'{"type": "start", "number": 1, "argv": ["a"], "environment": {}}',
            "socket_path is missing",
        ),
    ],
)
def test_a_damaged_line_is_refused_with_what_is_wrong(line: bytes, complaint: str) -> None:
    with pytest.raises(InvalidMessage, match=complaint):
        parse(line)


names = st.sampled_from(["type", *(name for kind in messages.MESSAGES for name in kind.__annotations__)])
values = st.one_of(
    st.none(),
    st.booleans(),
    number,
    text,
    st.lists(text, max_size=2),
    st.dictionaries(text, text, max_size=2),
)


@given(st.sampled_from(messages.MESSAGES), st.dictionaries(names, values))
def test_no_fields_raise_anything_else(kind: type[Message], fields: dict[str, Any]) -> None:
    try:
        parse(json.dumps({"type": kind.TYPE, **fields}).encode())
    except InvalidMessage:
        pass
