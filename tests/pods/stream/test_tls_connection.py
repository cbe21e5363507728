"""TLS over a socket that never blocks: nothing is lost or kept in between, and nobody is polled in vain."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

from bitfusion_pods.stream.tls_connection import RECORD, TlsConnection
from tests.pods.stream.sides import CLIENT, POD, Keys, tcp
from tests.support.waiting import wait_until

BULK = bytes(range(256)) * 256  # 64 KiB


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def ends(keys: Keys) -> Iterator[tuple[TlsConnection, TlsConnection]]:
    """Both, after their handshake."""
    ours, theirs = tcp()
    made = (
        TlsConnection(ours, keys.context(CLIENT, POD), server=False),
        TlsConnection(theirs, keys.context(POD, CLIENT), server=True),
    )

    def shaken(connection: TlsConnection) -> bool:
        try:
            connection.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    wait_until(lambda: not [each for each in made if not shaken(each)], "both handshakes")
    yield made
    for each in made:
        each.close()


def received(connection: TlsConnection) -> bytes:
    """What is there now."""
    came = b""
    while True:
        try:
            came += connection.recv(RECORD)
        except ssl.SSLWantReadError:
            return came


def test_what_was_taken_while_the_peer_stands_still_leaves_later_and_no_more_is_taken(
    ends: tuple[TlsConnection, TlsConnection],
) -> None:
    sender, reader = ends
    taken, is_full = b"", False
    while not is_full:  # a moment after it was, the system may have moved on what it held
        try:
            taken += BULK[: sender.send(BULK)]
        except ssl.SSLWantWriteError:
            is_full = True
    assert sender.wants_write
    came = b""
    while len(came) < len(taken):
        select.select([reader], [], [], 1)
        came += received(reader)
        try:
            sender.flush()
        except ssl.SSLWantWriteError:
            pass
    assert came == taken
    assert not sender.wants_write


def test_bulk_that_was_read_from_the_system_at_once_is_told_until_all_of_it_is_given(
    ends: tuple[TlsConnection, TlsConnection],
) -> None:
    sender, reader = ends
    assert sender.send(BULK) == len(BULK)
    select.select([reader], [], [], 1)
    came = bytes(reader.recv(RECORD))
    assert len(came) == RECORD
    while reader.has_more:
        try:
            came += reader.recv(RECORD)
        except ssl.SSLWantReadError:
            break
    assert came == BULK
    assert not reader.has_more


def test_several_records_come_at_once_and_an_end_behind_them_by_the_next_call(
    ends: tuple[TlsConnection, TlsConnection],
) -> None:
    sender, reader = ends
    received(reader)  # TLS's tickets
    received(sender)
    assert sender.send(BULK) == len(BULK)
    sender.close()
    select.select([reader], [], [], 1)
    came = bytes(reader.recv(len(BULK) + 1))
    assert len(came) > RECORD
    while not reader.was_closed:
        came += reader.recv(len(BULK) + 1)
    assert came == BULK
    assert not reader.recv(1)
    assert reader.was_closed


def test_half_a_record_is_waited_for_and_not_asked_about_without_end(
    ends: tuple[TlsConnection, TlsConnection],
) -> None:
    sender, reader = ends
    sender.send(b"x" * 1000)
    select.select([reader], [], [], 1)
    record = reader.raw.recv(2000)
    through = ssl.MemoryBIO()
    through.write(record)
    for part in (through.read(500), through.read()):
        with pytest.raises(ssl.SSLWantReadError):
            reader.recv(RECORD)
        assert not reader.has_more
        reader._came.write(part)
    assert reader.recv(RECORD) == b"x" * 1000


@pytest.mark.parametrize("is_reset", [True, False])
def test_a_reset_that_a_write_has_met_first_is_no_close_in_good_order(
    ends: tuple[TlsConnection, TlsConnection], is_reset: bool
) -> None:
    peer, ours = ends
    received(peer)  # TLS's tickets: what nobody has read makes a close a reset
    if is_reset:
        peer.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    select.select([ours], [], [], 1)
    if is_reset:
        ours.send(b"who is there?")  # takes the error, which `recv` then does not see
    assert not ours.recv(RECORD)
    assert ours.was_closed is not is_reset
