"""A connection between two processes: whole messages; peers that read nothing, are gone, send rubbish."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bitfusion_kernel.processes.message_connection import MAX_BACKLOG, MessageConnection
from bitfusion_kernel.processes.messages import (
    KernelExitedEvent,
    Message,
    OutputEvent,
    StartedEvent,
    StopCommand,
    StoppedEvent,
)

LINE = OutputEvent("stdout", "x" * 20_000)


@pytest.fixture
def pair() -> Iterator[tuple[MessageConnection, socket.socket]]:
    """One end, and the bare socket of the other."""
    ours, theirs = socket.socketpair()
    connection = MessageConnection(ours)
    yield connection, theirs
    connection.close()
    theirs.close()


def test_messages_arrive_whole_and_in_order(pair: tuple[MessageConnection, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(StopCommand().format() + StartedEvent(7).format()[:5])
    assert ours.receive() == [StopCommand()]
    assert ours.receive() == []
    theirs.sendall(StartedEvent(7).format()[5:])
    assert ours.receive() == [StartedEvent(7)]
    assert not ours.closed


def test_what_a_slow_peer_does_not_take_waits_in_memory() -> None:
    ours, theirs = (MessageConnection(end) for end in socket.socketpair())
    sent: list[Message] = [LINE, *(StartedEvent(number) for number in range(50_000)), StopCommand()]
    for message in sent:
        ours.send(message)
    assert ours.wants_write
    received: list[Message] = []
    while len(received) < len(sent):
        received += theirs.receive()
        ours.flush()
    assert received == sent
    assert not ours.wants_write
    ours.close()
    theirs.close()


def test_output_for_a_peer_that_reads_nothing_is_dropped_but_nothing_else() -> None:
    ours, theirs = (MessageConnection(end) for end in socket.socketpair())
    for _ in range(2 * MAX_BACKLOG // len(LINE.text)):
        ours.send(LINE, droppable=True)
    ours.send(StoppedEvent())
    received: list[Message] = []
    while StoppedEvent() not in received:
        received += theirs.receive()
        ours.flush()
    assert len(received) - 1 < 2 * MAX_BACKLOG // len(LINE.text)
    ours.close()
    theirs.close()


def test_a_peer_that_has_gone_is_noticed_and_sending_to_it_is_harmless(
    pair: tuple[MessageConnection, socket.socket],
) -> None:
    ours, theirs = pair
    for _ in range(200):
        ours.send(LINE, droppable=True)
    assert ours.wants_write
    theirs.close()
    ours.flush()
    assert not ours.wants_write
    assert ours.receive() == []
    assert ours.closed
    ours.send(StopCommand())


def test_its_last_messages_are_still_received(pair: tuple[MessageConnection, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(KernelExitedEvent(3).format())
    theirs.close()
    assert ours.receive() == [KernelExitedEvent(3)]
    assert ours.closed


def test_a_message_of_an_unknown_type_is_passed_over(pair: tuple[MessageConnection, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b'{"type": "of tomorrow"}\n' + StopCommand().format())
    assert ours.receive() == [StopCommand()]
    assert not ours.closed


@pytest.mark.parametrize(
    "line", [b"rubbish\n", b"[]\n", b"{}\n", b'{"type": "started", "pid": "x"}\n', b"\xff\n"]
)
def test_a_damaged_message_ends_the_connection_on_both_sides(
    pair: tuple[MessageConnection, socket.socket], line: bytes
) -> None:
    ours, theirs = pair
    theirs.sendall(StopCommand().format() + line + StoppedEvent().format())
    assert ours.receive() == [StopCommand()]  # what came before it counts
    assert ours.closed
    assert theirs.recv(1) == b""
    assert not ours.wants_write
