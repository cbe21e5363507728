"""The bytes of a TLS connection, in every way in which they may come."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pool.access.tls import client_context, server_context
from bitfusion_pool.service.connections.tls_stream import Linger, TlsStream
from tests.support.certificates import certified

HOST = "127.0.0.1"


class Client:
    """The other end, whose bytes the test moves."""

    def __init__(self, authority: Path, plain: socket.socket) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(authority.read_text())
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=HOST)
        self.plain = plain

    def flush(self) -> None:
        self.plain.sendall(self.outgoing.read())

    def shake_hands(self, server: TlsStream, with_it: bytes = b"") -> bool:
        """The whole handshake; `with_it` is sent together with its last message."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        self.flush()
        assert not server.shake_hands()
        self.incoming.write(self.plain.recv(1 << 16))
        self.tls.do_handshake()
        if with_it:
            self.tls.write(with_it)
        self.flush()
        return server.shake_hands()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def pair(tmp_path: Path, loop: asyncio.AbstractEventLoop) -> Iterator[tuple[TlsStream, Client]]:
    authority = certified("authority", authority=True)
    server = certified("server", [HOST], signed_by=authority)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "server.pem").write_bytes(server.certificate + server.key)
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    stream = TlsStream(ours, server_context(str(tmp_path / "server.pem")), Linger(loop))
    yield stream, Client(tmp_path / "ca.crt", theirs)
    ours.close()
    theirs.close()


def test_a_message_that_comes_with_the_end_of_the_handshake_is_not_lost(
    pair: tuple[TlsStream, Client],
) -> None:
    server, client = pair
    assert client.shake_hands(server, b"hello\n")
    assert server.has_more
    assert server.receive() == b"hello\n"
    assert not server.has_more
    with pytest.raises(BlockingIOError):
        server.receive()


def test_a_record_in_pieces_is_put_together(pair: tuple[TlsStream, Client]) -> None:
    server, client = pair
    client.shake_hands(server)
    client.tls.write(b"hello\n")
    record = client.outgoing.read()
    for number in range(len(record) - 1):
        client.plain.sendall(record[number : number + 1])
        with pytest.raises(BlockingIOError):
            server.receive()
    client.plain.sendall(record[-1:])
    assert server.receive() == b"hello\n"


def test_words_before_the_end_are_read_and_then_the_end(pair: tuple[TlsStream, Client]) -> None:
    server, client = pair
    client.shake_hands(server)
    client.tls.write(b"last words\n")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.flush()
    assert server.receive() == b"last words\n"
    assert server.has_more
    assert server.receive() == b""


def test_bytes_that_are_no_record_are_an_error(pair: tuple[TlsStream, Client]) -> None:
    server, client = pair
    client.shake_hands(server)
    client.plain.sendall(b"GET / HTTP/1.1\r\n")
    with pytest.raises(ssl.SSLError):
        server.receive()


def send_until_full(server: TlsStream, data: bytes) -> int:
    sent = 0
    try:
        while True:
            sent += server.send(data[sent:], -1)
    except BlockingIOError:
        return sent


def test_what_the_other_side_does_not_read_is_sent_later_and_once(pair: tuple[TlsStream, Client]) -> None:
    server, client = pair
    client.shake_hands(server)
    data = b"".join(number.to_bytes(4, "big") for number in range(1 << 20))
    sent = send_until_full(server, data)
    assert 0 < sent < len(data)
    client.plain.setblocking(False)
    received = bytearray()
    while len(received) < len(data):
        try:
            client.incoming.write(client.plain.recv(1 << 16))
        except BlockingIOError:
            sent += server.send(data[sent:], -1)
            continue
        try:
            while True:
                received += client.tls.read(1 << 16)
        except ssl.SSLWantReadError:
            pass
        try:
            if sent < len(data):
                sent += server.send(data[sent:], -1)
        except BlockingIOError:
            pass
    assert bytes(received) == data


def test_the_end_is_said_and_waits_for_nobody(
    pair: tuple[TlsStream, Client], loop: asyncio.AbstractEventLoop
) -> None:
    server, client = pair
    client.shake_hands(server)
    server.send(b"last words\n", -1)
    server.close()
    client.incoming.write(client.plain.recv(1 << 16))
    assert client.tls.read() == b"last words\n"
    assert client.tls.read() == b""
    client.plain.close()
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    assert server.fileno() == -1


def test_tls_is_not_renegotiated_and_not_older_than_1_2(tmp_path: Path) -> None:
    server = certified("server", [HOST])
    (tmp_path / "server.pem").write_bytes(server.certificate + server.key)
    context = server_context(str(tmp_path / "server.pem"))
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("seen", ["before", "later"])
def test_who_ends_it_in_order_is_seen_to_have_gone(loop: asyncio.AbstractEventLoop, seen: str) -> None:
    ours, theirs = connection()
    if seen == "before":
        theirs.close()
    gone: list[bool] = []
    Linger(loop).close(ours, lambda: gone.append(True))
    if seen == "later":
        loop.run_until_complete(asyncio.sleep(0))
        assert gone == []
        theirs.close()
    while ours.fileno() >= 0:
        loop.run_until_complete(asyncio.sleep(0.01))
    assert gone == [True]


@pytest.mark.parametrize("told", ["by the end itself", "by a call before", "later"])
def test_a_connection_that_is_reset_says_nothing_of_the_other_side(
    loop: asyncio.AbstractEventLoop, told: str
) -> None:
    ours, theirs = connection()
    gone: list[bool] = []
    if told == "later":
        Linger(loop).close(ours, lambda: gone.append(True))
        reset(theirs)
        while ours.fileno() >= 0:
            loop.run_until_complete(asyncio.sleep(0.01))
        assert gone == []
        return
    reset(theirs)
    with select.epoll() as poll:
        poll.register(ours, select.EPOLLHUP)
        assert poll.poll(10)
    if told == "by a call before":
        with pytest.raises(ConnectionError):
            ours.recv(1)
    Linger(loop).close(ours, lambda: gone.append(True))
    assert ours.fileno() == -1
    loop.run_until_complete(asyncio.sleep(0))
    assert gone == []


def connection() -> tuple[socket.socket, socket.socket]:
    """Our end and theirs of a TCP connection."""
    with socket.create_server((HOST, 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.setblocking(False)
    return ours, theirs


def reset(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
