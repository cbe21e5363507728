"""A few paths over plain HTTP: crowds, silence and slowness cost nobody else the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest

from bitfusion_client.listening import plain_http
from bitfusion_client.listening.crowd import TOO_MANY, TOO_SLOW
from bitfusion_client.listening.plain_http import PLAIN, PlainHttp
from tests.support.machine import scaled

GET = b"GET /a HTTP/1.1\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Run = Callable[[Callable[["Served"], Awaitable[Any]]], Any]
LARGE = 16 << 20  # bytes; more than the system keeps for a client that does not read


class Served:
    """A listener, and what it closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plain_http, "MOST_CONNECTIONS", 4)
        self.closed: list[str] = []
        small = (HTTPStatus.OK, PLAIN, b"a")
        large = (HTTPStatus.OK, PLAIN, bytes(LARGE))
        self.server = PlainHttp({"/a": lambda: small, "/large": lambda: large}, self.closed.append)
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, said: bytes = b"", source: str = "127.0.0.1") -> Streams:
        made = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))
        made[1].write(said)
        self._writers.append(made[1])
        return made

    async def crowd(self, said: bytes = b"") -> None:
        for _ in range(12):
            await self.connect(said)

    def close(self) -> None:
        self.server.stop()
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a scenario with a listener that has few connections."""
    return partial(_run, monkeypatch)


def _run(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Served], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        served = Served(monkeypatch)
        served.port = await served.server.start("127.0.0.1", 0)
        try:
            return await asyncio.wait_for(scenario(served), scaled(30))
        finally:
            served.close()
            await asyncio.sleep(0.05)

    return asyncio.run(main())


async def everything(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    "said", [b"", GET[:-1], b"GET /large HTTP/1.1\r\n\r\n"], ids=["silent", "half", "deaf"]
)
def test_a_crowd_keeps_nobody_from_an_answer(run: Run, said: bytes) -> None:
    async def scenario(served: Served) -> None:
        new, _ = await served.connect(source="127.0.0.2")
        served._writers[0].write(GET[:5])
        await served.crowd(said)
        served._writers[0].write(GET[5:])
        assert (await everything(new)).endswith(b"\r\n\r\na")
        assert set(served.closed) == {TOO_MANY}

    run(scenario)


def test_who_is_being_answered_is_pushed_out_by_nobody_who_has_not_asked(run: Run) -> None:
    async def scenario(served: Served) -> None:
        reader, _ = await served.connect(b"GET /large HTTP/1.1\r\n\r\n")
        await reader.readexactly(1000)
        await served.crowd()
        assert len(await everything(reader)) > LARGE - 1000

    run(scenario)


@pytest.mark.parametrize(
    "said", [b"", GET[:-1], b"GET /large HTTP/1.1\r\n\r\n"], ids=["silent", "half", "deaf"]
)
def test_who_takes_too_long_is_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(plain_http, "REQUEST_S", 0.2)

    async def scenario(served: Served) -> None:
        reader, writer = await served.connect(said)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a stream over TCP
        while not served.closed:
            await asyncio.sleep(0.01)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await everything(reader)) < LARGE
        assert served.closed == [TOO_SLOW]

    run(scenario)


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (GET, 200, b"a"),
        (b"GET /a?name=x HTTP/1.1\r\n\r\n", 200, b"a"),
        (b"HEAD /a HTTP/1.1\r\n\r\n", 200, b""),
        (b"POST /a HTTP/1.1\r\n\r\n", 405, b"GET only\n"),
        (b"GET /b HTTP/1.1\r\n\r\n", 404, b"only /a and /large can be found here\n"),
    ],
)
def test_what_is_answered(run: Run, said: bytes, status: int, body: bytes) -> None:
    async def scenario(served: Served) -> bytes:
        reader, _ = await served.connect(said)
        return await everything(reader)

    head, _, found = run(scenario).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert found == body
