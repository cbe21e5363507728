"""Frames over real TLS connections that are lost: none is lost with them, none comes twice."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bitfusion_pods.command.dialing import Dialing
from bitfusion_pods.stream import greeting, handshake, link
from bitfusion_pods.stream.frames import Frame, Kind, ProtocolError, count
from bitfusion_pods.stream.greeting import Greeting
from bitfusion_pods.stream.handshake import Handshake, Refused
from bitfusion_pods.stream.kept_bytes import AnotherHistory
from bitfusion_pods.stream.link import Link, Lost
from bitfusion_pods.stream.session import Session
from tests.pods.frame_bytes import encode
from tests.pods.stream.sides import (
    CLIENT,
    POD,
    SESSION,
    STRANGER,
    Keys,
    Sides,
    exchange,
    finish,
    joined,
    read,
    tcp,
)
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def sides(keys: Keys) -> Iterator[Sides]:
    made = Sides(keys)
    made.connect()
    yield made
    made.close()


def until(reader: Link, writer: Link, frames: list[Frame], number: int) -> list[Frame]:
    """Read into `frames` until there are so many."""
    return read_into(reader, writer, frames, lambda: len(frames) >= number)


def read_into(reader: Link, writer: Link, frames: list[Frame], enough: Callable[[], bool]) -> list[Frame]:
    def there() -> bool:
        writer.flush()
        frames.extend(read(reader))
        return enough()

    wait_until(there, lambda: f"all frames; there are {len(frames)}")
    return frames


def is_all(frames: list[Frame], sent: list[Frame]) -> bool:
    return joined(frames) == sent


def test_frames_go_both_ways(sides: Sides) -> None:
    sides.client.put(Kind.SPAWN, 0, b"{}")
    sides.pod.put(Kind.DATA, 2, b"said")
    assert until(sides.pod, sides.client, [], 1) == [(Kind.SPAWN, 0, b"{}")]
    assert until(sides.client, sides.pod, [], 1) == [(Kind.DATA, 2, b"said")]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_cut_wherever_everything_arrives_once_and_in_order(sides: Sides, seed: int) -> None:
    dice = random.Random(seed)
    sent: dict[Link, list[Frame]] = {sides.client: [], sides.pod: []}
    came: dict[Link, list[Frame]] = {sides.client: [], sides.pod: []}
    for number in range(400):
        for side, others in ((sides.client, sides.pod), (sides.pod, sides.client)):
            frame = Frame(Kind.DATA, number, dice.randbytes(dice.choice((1, 10, 20_000))))
            side.put(*frame)
            sent[side].append(frame)
            if dice.random() < 0.7:
                came[side] += exchange(side)
                came[others] += exchange(others)
        if dice.random() < 0.1:
            for _ in range(dice.randrange(3)):
                sides.client.flush()
                sides.pod.flush()
            sides.cut()
            sides.connect()
    for side, others in ((sides.client, sides.pod), (sides.pod, sides.client)):
        read_into(others, side, came[others], partial(is_all, came[others], sent[side]))
    assert sides.client.connections > 10


def test_what_is_acknowledged_is_forgotten_also_while_bulk_flows(sides: Sides) -> None:
    came: list[Frame] = []
    for number in range(200):
        sides.pod.put(Kind.DATA, 2, bytes(60_000))
        until(sides.client, sides.pod, came, number + 1)
        sides.client.flush()
        sides.pod.read()
    assert sides.pod.has_room
    assert sides.pod._kept.end - sides.pod._kept.base < 1 << 20


def test_an_orderly_end_is_told_after_what_came_before_it(sides: Sides) -> None:
    sides.pod.put(Kind.EXIT, 0, b"7")
    sides.pod.flush()
    sides.pod.detach()
    assert until(sides.client, sides.pod, [], 1) == [(Kind.EXIT, 0, b"7")]
    with pytest.raises(Lost, match="has closed the connection") as lost:
        wait_until(lambda: sides.client.read(), "the end")
    assert lost.value.closed
    with pytest.raises(Lost):
        sides.client.read()


def test_a_reset_is_told(sides: Sides) -> None:
    assert sides.pod.connection is not None
    sides.client.put(Kind.DATA, 2, b"not read")
    sides.client.flush()
    sides.pod.connection.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sides.pod.detach()
    with pytest.raises(Lost, match="reset") as lost:
        wait_until(lambda: exchange(sides.client), "the end")
    assert not lost.value.closed


def test_each_says_that_it_lives_and_silence_ends_the_connection(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("bitfusion_pods.stream.link.time.monotonic", lambda: now)
    sides.client.beat()
    assert not sides.client.wants_write, "there is nothing to say yet"
    now += link.PING_EVERY + 0.1
    sides.client.beat()
    assert until(sides.pod, sides.client, [], 0) == [], "the answer is the link's own"
    wait_until(lambda: (sides.pod.read(), sides.pod.wants_write)[1], "the answer")
    sides.pod.flush()
    now += link.DEAD_AFTER + 0.1
    wait_until(lambda: (sides.client.read(), sides.client._heard_at == now)[1], "the answer")
    sides.client.beat()
    with pytest.raises(Lost, match="nothing was heard for 10 s"):
        sides.pod.beat()


@pytest.mark.parametrize("word", [encode(Kind.ACK, 0, count(10**9)), encode(Kind.PING, 0, count(2**63))])
def test_a_peer_that_has_received_what_was_never_sent_is_none(sides: Sides, word: bytes) -> None:
    sides.pod._kept.put(word)
    with pytest.raises(ProtocolError, match="it has received"):
        wait_until(lambda: exchange(sides.pod) or sides.client.read(), "the word")


def test_a_connection_that_was_greeted_before_another_brought_something_is_not_used(
    sides: Sides, keys: Keys
) -> None:
    early = sides.client.greet()
    sides.connect()
    sides.pod.put(Kind.DATA, 2, b"brought by the other one")
    until(sides.client, sides.pod, [], 1)
    assert sides.client.connection is not None
    with pytest.raises(AnotherHistory, match="another connection was faster"):
        sides.client.attach(sides.client.connection, early, Greeting(SESSION, 0))


# -- who is not let in ------------------------------------------------------------------------------


def refusal(
    keys: Keys, client: Callable[[socket.socket], None], own: Callable[[Greeting | None], Greeting]
) -> str:
    """Why the pod's side refuses what this client does on its end of a connection."""
    raw, pods = tcp()
    listens = Handshake(pods, keys.context(POD, CLIENT), own, server=True)
    with raw:
        client(raw)
        with pytest.raises(Refused) as refused:
            finish(listens)
    return str(refused.value)


def greets(theirs: Greeting | None) -> Greeting:
    return Greeting(SESSION, 0)


def test_plain_text_is_refused(keys: Keys) -> None:
    assert "SSL" in refusal(keys, lambda raw: raw.sendall(b"GET / HTTP/1.1\r\n\r\n"), greets)


def test_somebody_who_leaves_is_refused(keys: Keys) -> None:
    assert refusal(keys, lambda raw: raw.close(), greets)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # `ssl` has taken the socket, and drops it
@pytest.mark.parametrize("server", [True, False])
def test_a_connection_that_was_reset_before_its_handshake_began_is_refused(keys: Keys, server: bool) -> None:
    ours, others = tcp()
    others.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    others.close()
    fd, context = ours.fileno(), keys.context(*((POD, CLIENT) if server else (CLIENT, POD)))
    with pytest.raises(Refused, match="Connection reset by peer"):
        Handshake(ours, context, greets, server=server)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_dial_that_is_reset_before_its_handshake_begins_is_made_again(keys: Keys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        session = Session(SESSION, of_pod=False)
        dialing = Dialing(listener.getsockname(), keys.context(CLIENT, POD), session)
        dialing.go_on()
        peer, _ = listener.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: session.others)
        (connected,) = session.others.values()
        # between the look whether it is connected, which is well, and the handshake
        resets = partial(reset_first, peer, socket.socket.getsockopt)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "getsockopt", lambda self, *words: resets(self, *words))
            connected()
        assert (session.others, session.writing) == ({}, set())
        assert "reset by peer" in dialing.why
        assert dialing.seconds_to_next_step < 1
        session.close()


def reset_first(peer: socket.socket, look: Callable[..., Any], *words: Any) -> Any:
    found = look(*words)
    peer.close()
    return found


@pytest.mark.parametrize("who", [STRANGER, POD])
def test_another_key_is_refused_and_hears_no_greeting(keys: Keys, who: str) -> None:
    raw, pods = tcp()
    listens = Handshake(pods, keys.context(POD, CLIENT), greets, server=True)
    context = keys.context(CLIENT, POD)
    folder = keys.folder / who
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    dials = Handshake(raw, context, lambda _: Greeting(SESSION, 0), server=False)
    with pytest.raises(Refused):
        finish(dials, listens)
    assert listens.said is None
    dials.close()
    listens.close()


def test_a_pod_with_another_key_is_refused(keys: Keys) -> None:
    raw, pods = tcp()
    folder = keys.folder / STRANGER
    context = keys.context(POD, CLIENT)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    listens = Handshake(pods, context, greets, server=True)
    dials = Handshake(raw, keys.context(CLIENT, POD), lambda _: Greeting(SESSION, 0), server=False)
    with pytest.raises(Refused, match=r"self-signed|verify failed"):
        finish(dials, listens)
    dials.close()
    listens.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: of a pod\r\n\r\n", "does not speak this protocol"),
        (
            greeting.MAGIC[:-1] + b"\2" + SESSION + bytes(8),
            "speaks version 2 of this protocol, and this is 1",
        ),
        (Greeting(b"another session!", 0).encode(), "it is of another session"),
    ],
)
def test_who_says_something_else_is_refused(keys: Keys, said: bytes, why: str) -> None:
    raw, pods = tcp()
    sides = Sides(keys)
    listens = Handshake(pods, keys.context(POD, CLIENT), sides._pod_greets, server=True)
    dials = Handshake(raw, keys.context(CLIENT, POD), lambda _: Greeting(SESSION, 0), server=False)
    dials._to_send = said
    with pytest.raises(Refused, match=why):
        finish(dials, listens)
    dials.close()


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02"])
def test_a_stranger_who_says_nothing_holds_up_nobody(keys: Keys, said: bytes) -> None:
    """Whoever owns it closes it when its time is over; nothing blocks meanwhile."""
    raw, pods = tcp()
    listens = Handshake(pods, keys.context(POD, CLIENT), greets, server=True)
    raw.sendall(said)
    assert not listens.connection.raw.getblocking()
    for _ in range(100):
        assert listens.go_on() is None
    assert 0 < listens.until - time.monotonic() <= handshake.LIMIT
    listens.close()
    raw.close()


def test_greetings_are_32_bytes_and_back(tmp_path: Path) -> None:
    said = Greeting(SESSION, 2**63)
    assert len(said.encode()) == greeting.LENGTH == 32
    assert greeting.decode(said.encode()) == said
