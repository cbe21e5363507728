"""Connections of an HTTP port: who is kept, who goes, and how long one may say nothing."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW
from bitfusion_cluster.program import http_connections
from bitfusion_cluster.program.http_connections import MANY, Most
from bitfusion_cluster.program.http_service import HttpService, Response, Route, plain
from tests.notebook_controller_patch.admission.live_server import (
    HOST,
    Client,
    head,
    server_context,
    write_certificate,
)
from tests.support.flood import HELLO, SAID
from tests.support.machine import scaled

OTHER = "127.0.0.2"  # another source than HOST
HALF_A_HEADER = b"GET /ok HTTP/1.1\r\nHost"
LIMITS = {name: getattr(http_connections, name) for name in ("HANDSHAKE_SECONDS", "HEADER_SECONDS")}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a time limit is met only where a test shortens it."""
    for name in LIMITS:
        monkeypatch.setattr(http_connections, name, 60.0)


class Served:
    """A service with few connections, what it closed, and its clients."""

    def __init__(self, most: Most, context: ssl.SSLContext | None) -> None:
        self.closed: list[str] = []
        self.let_go = asyncio.Event()
        routes = {"/ok": Route("GET", lambda body: plain(200, "ok")), "/later": Route("GET", self._later)}
        self.service = HttpService(routes, context, on_closed=self.closed.append, most=most)
        self.port = 0
        self._clients: list[Client] = []
        self.trusting = ssl.create_default_context()
        self.trusting.check_hostname = False
        self.trusting.verify_mode = ssl.CERT_NONE

    async def _later(self, body: bytes) -> Response:
        await self.let_go.wait()
        return plain(200, "later")

    async def client(self, source: str = HOST, over_tls: bool = False) -> Client:
        trusting = self.trusting if over_tls else None
        made = await asyncio.open_connection(HOST, self.port, local_addr=(source, 0), ssl=trusting)
        self._clients.append(Client(*made))
        return self._clients[-1]

    async def that_has_asked(self, source: str = HOST) -> Client:
        client = await self.client(source)
        assert (await client.send("GET", "/ok")).status == 200
        return client

    async def crowd(self, count: int, said: bytes = b"", source: str = HOST) -> list[Client]:
        clients = []
        for _ in range(count):
            clients.append(await self.client(source))
            await clients[-1].write(said)
            await asyncio.sleep(0.001)
        return clients

    async def close(self) -> None:
        for client in self._clients:
            await client.close()
        await self.service.stop(0)


@asynccontextmanager
async def serving(most: Most = MANY, context: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    served = Served(most, context)
    served.port = await served.service.start(HOST, 0)
    try:
        yield served
    finally:
        await served.close()


def run(scenario: Callable[[Served], Awaitable[Any]], most: Most = MANY, context: Any = None) -> Any:
    async def main() -> Any:
        async with serving(most, context) as served:
            return await asyncio.wait_for(scenario(served), scaled(30))

    return asyncio.run(main())


async def ended(client: Client) -> bool:
    """Whether the server ends it, within a while."""
    return await asyncio.wait_for(client.ended(), scaled(10))


@pytest.mark.parametrize("said", [b"", HALF_A_HEADER])
def test_a_crowd_that_asks_nothing_costs_nobody_who_has_asked(said: bytes) -> None:
    async def scenario(served: Served) -> None:
        kept = await served.that_has_asked()
        first, *_ = await served.crowd(20, said)
        assert (await kept.send("GET", "/ok")).status == 200
        assert await ended(first)
        assert served.closed == [TOO_MANY] * 16

    run(scenario, Most(4, 4, 4))


def test_a_crowd_pushes_out_nobody_from_elsewhere_who_has_only_just_come() -> None:
    async def scenario(served: Served) -> None:
        new = await served.client(OTHER)
        await new.write(HALF_A_HEADER)
        await served.crowd(20)
        await new.write(b": a\r\n\r\n")
        assert (await new.read()).status == 200

    run(scenario, Most(4, 4, 4))


def test_who_is_being_served_is_pushed_out_by_nobody_who_is_not() -> None:
    async def scenario(served: Served) -> None:
        waiting = await served.client()
        await waiting.write(head("GET", "/later", {"Host": "a"}))
        while not served.service.in_flight:
            await asyncio.sleep(0.005)
        await served.crowd(20)
        for _ in range(20):
            await served.that_has_asked(OTHER)
        served.let_go.set()
        assert (await waiting.read()).text == "later\n"

    run(scenario, Most(4, 4, 4))


def test_of_those_that_are_kept_the_one_goes_that_has_asked_nothing_for_longest() -> None:
    async def scenario(served: Served) -> None:
        few = await served.that_has_asked(OTHER)
        first, second, third = [await served.that_has_asked() for _ in range(3)]
        assert (await first.send("GET", "/ok")).status == 200
        await served.that_has_asked(OTHER)
        assert await ended(second)
        for client in (few, first, third):
            assert (await client.send("GET", "/ok")).status == 200
        assert served.closed == [TOO_MANY]

    run(scenario, Most(4, 4, 4))


def test_who_would_push_out_its_own_is_asked_to_end_the_connection_instead() -> None:
    """A connection that its client ends cannot have a review under way; one that we end can."""

    async def scenario(served: Served) -> None:
        kept = [await served.that_has_asked() for _ in range(4)]
        another = await served.client()
        answer = await another.send("GET", "/ok")
        assert answer.headers["Connection"] == "close"
        await another.close()
        for client in kept:
            assert (await client.send("GET", "/ok")).status == 200
        assert served.closed == []

    run(scenario, Most(4, 4, 4))


def test_a_burst_of_new_connections_that_all_ask_loses_none(tmp_path: Path) -> None:
    """As the API server begins them, each with a handshake, when a hundred pods are made at once."""

    async def scenario(served: Served) -> list[int]:
        async def ask() -> int:
            client = await served.client(over_tls=True)
            return (await client.send("GET", "/ok")).status

        return await asyncio.gather(*(ask() for _ in range(200)))

    context = server_context(*write_certificate(tmp_path))
    assert run(scenario, MANY, context) == [200] * 200


@pytest.mark.parametrize(
    ("over_tls", "says", "limit"),
    [
        (False, b"", "HEADER_SECONDS"),
        (False, HALF_A_HEADER, "HEADER_SECONDS"),
        (True, b"", "HANDSHAKE_SECONDS"),
        (True, SAID[HELLO], "HANDSHAKE_SECONDS"),
    ],
)
def test_who_does_not_ask_in_time_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, over_tls: bool, says: bytes, limit: str
) -> None:
    assert LIMITS[limit] == 5
    monkeypatch.setattr(http_connections, limit, 0.3)

    async def scenario(served: Served) -> float:
        began = time.monotonic()
        client = await served.client()
        await client.write(says)
        assert await ended(client)
        assert served.closed == [TOO_SLOW]
        return time.monotonic() - began

    context = server_context(*write_certificate(tmp_path)) if over_tls else None
    assert run(scenario, MANY, context) > 0.25


@pytest.mark.parametrize("over_tls", [False, True])
def test_first_words_may_come_in_any_pieces(tmp_path: Path, over_tls: bool) -> None:
    hello = ssl.MemoryBIO()

    async def scenario(served: Served) -> bytes:
        client = await served.client()
        said = head("GET", "/ok", {"Host": "a", "Connection": "close"})
        if over_tls:
            with pytest.raises(ssl.SSLWantReadError):
                served.trusting.wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
            said = hello.read()
        for start in range(0, len(said), 7):
            await client.write(said[start : start + 7])
            await asyncio.sleep(0.002)
        return await client.reader.readexactly(3)

    context = server_context(*write_certificate(tmp_path)) if over_tls else None
    assert run(scenario, MANY, context) == (b"\x16\x03\x03" if over_tls else b"HTT")  # a handshake's record


@pytest.mark.parametrize("over_tls", [False, True])
def test_who_ends_in_the_middle_of_its_first_words_takes_no_time(tmp_path: Path, over_tls: bool) -> None:
    """The end of a connection makes it readable for good, and what was said is in it still."""

    async def scenario(served: Served) -> float:
        client = await served.client()
        await client.write(SAID[HELLO] if over_tls else HALF_A_HEADER)
        await asyncio.sleep(0.05)
        client.writer.write_eof()
        before = time.process_time()
        await asyncio.wait_for(client.reader.read(), scaled(10))  # an alert, or nothing
        return time.process_time() - before

    context = server_context(*write_certificate(tmp_path)) if over_tls else None
    assert run(scenario, MANY, context) < 0.2


def test_a_head_that_comes_byte_by_byte_has_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "HEADER_SECONDS", 0.3)

    async def scenario(served: Served) -> int:
        client = await served.client()
        for sent in range(1000):
            try:
                await client.write(b"G")
            except ConnectionError:
                return sent
            await asyncio.sleep(0.02)
        return 1000

    assert run(scenario) < 500


def test_who_does_not_end_a_connection_when_asked_to_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(served: Served) -> None:
        another = await served.client()
        await served.that_has_asked()  # the port has taken `another` before it
        monkeypatch.setattr(http_connections, "HEADER_SECONDS", 0.2)
        assert (await another.send("GET", "/ok")).status == 200
        assert await ended(another)
        assert served.closed == [TOO_SLOW]

    run(scenario, Most(4, 4, 1))


def test_who_has_asked_in_time_may_be_silent_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connections, "HEADER_SECONDS", scaled(0.3))

    async def scenario(served: Served) -> int:
        client = await served.that_has_asked()
        await asyncio.sleep(scaled(0.6))
        return (await client.send("GET", "/ok")).status

    assert run(scenario) == 200


def test_who_has_shaken_hands_may_ask_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The API server opens some connections in reserve, keeps them for 90 s, and may use one at any time."""
    monkeypatch.setattr(http_connections, "HANDSHAKE_SECONDS", scaled(0.5))
    monkeypatch.setattr(http_connections, "HEADER_SECONDS", 0.2)

    async def scenario(served: Served) -> int:
        client = await served.client(over_tls=True)
        await asyncio.sleep(scaled(0.8))
        return (await client.send("GET", "/ok")).status

    assert run(scenario, MANY, server_context(*write_certificate(tmp_path))) == 200


def test_who_has_shaken_hands_and_never_asks_is_closed_as_one_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", scaled(0.5))
    context = server_context(*write_certificate(tmp_path))

    async def scenario(served: Served) -> bool:
        return await ended(await served.client(over_tls=True))

    assert run(scenario, MANY, context)


def test_the_end_closes_also_those_that_have_said_nothing() -> None:
    async def scenario(served: Served) -> None:
        silent = await served.client()
        kept = await served.that_has_asked()
        await served.service.stop(0)
        assert await ended(silent)
        assert await ended(kept)
        assert served.closed == []

    run(scenario)


def test_of_many_that_are_sent_away_one_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run(lambda served: served.crowd(20), Most(4, 4, 4))
    (record,) = caplog.records
    assert (record.message, record.source, record.reason) == (  # type: ignore[attr-defined]  # of extra
        "connection rejected",
        HOST,
        TOO_MANY,
    )
