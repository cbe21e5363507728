"""The few paths over HTTP without TLS: listening, answers that cannot be made, clients that have gone."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from bitfusion_cluster.monitoring.endpoints import MonitoringServer
from bitfusion_cluster.program import http_connections, http_service
from bitfusion_cluster.program.http_service import HttpService, Response, Route, plain
from tests.notebook_controller_patch.admission.live_server import HOST, Client, head
from tests.support.machine import scaled


def broken(body: bytes) -> Response:
    raise RuntimeError("a bug")


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


without_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        (HOST, HOST),
        ("0.0.0.0", HOST),
        pytest.param("::", HOST, marks=without_ipv6),
        pytest.param("::", "::1", marks=without_ipv6),
    ],
)
def test_the_plain_listener_for_probes(address: Any, reached: Any) -> None:
    registry, state = CollectorRegistry(), {"ok": False}

    async def main() -> Any:
        monitoring = MonitoringServer({"certificate": lambda: state["ok"]}, registry)
        port = await monitoring.start(address, 0)
        client = Client(*await asyncio.open_connection(reached, port))
        answers = [
            await client.send("GET", path) for path in ("/healthz", "/readyz", "/metrics", "/admit/notebooks")
        ]
        state["ok"] = True
        answers.append(await client.send("GET", "/readyz"))
        await client.close()
        await monitoring.stop(1)
        return answers

    answers = asyncio.run(main())
    assert [(answer.status, answer.text) for answer in answers] == [
        (200, "ok\n"),
        (503, "not ready: certificate\n"),
        (200, generate_latest(registry).decode()),
        (404, "there is nothing at this path\n"),
        (200, "ok\n"),
    ]


def test_all_addresses_are_those_of_ipv4_where_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.socket

    def without_ipv6(family: int = socket.AF_INET, *more: Any, **other: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return create(family, *more, **other)

    async def main() -> Any:
        monitoring = MonitoringServer({}, CollectorRegistry())
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", without_ipv6)
            port = await monitoring.start("::", 0)
        client = Client(*await asyncio.open_connection(HOST, port))
        answer = await client.send("GET", "/healthz")
        await client.close()
        await monitoring.stop(1)
        return answer

    assert asyncio.run(main()).status == 200


def test_an_answer_that_cannot_be_made_is_a_500_and_a_traceback_in_the_log_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def later(body: bytes) -> Response:
        raise RuntimeError("a bug later")

    problems: list[int] = []

    async def main() -> Any:
        routes = {
            "/now": Route("GET", broken),
            "/later": Route("GET", later),
            "/ok": Route("GET", lambda body: plain(200, "ok")),
        }
        service = HttpService(routes, on_problem=problems.append)
        port = await service.start(HOST, 0)
        client = Client(*await asyncio.open_connection(HOST, port))
        answers = [await client.send("GET", path) for path in ("/now", "/later", "/ok")]
        await client.close()
        await service.stop(1)
        return answers

    answers = asyncio.run(main())
    assert [(answer.status, answer.text) for answer in answers] == [
        (500, "the server failed; its log says why\n"),
        (500, "the server failed; its log says why\n"),
        (200, "ok\n"),
    ]
    assert problems == [500, 500]
    assert [str(record.exc_info and record.exc_info[1]) for record in caplog.records] == [
        "a bug",
        "a bug later",
    ]


def test_a_connection_that_nobody_uses_is_closed_later_than_the_apiserver_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If we closed first, a review that is sent at that very moment would be lost."""
    apiserver_keeps_it = 90.0  # seconds, as Go's transports do by default
    assert apiserver_keeps_it * 1.5 <= http_connections.IDLE_SECONDS <= 600
    monkeypatch.setattr(http_connections, "IDLE_SECONDS", scaled(0.5))

    async def main() -> bytes:
        service = HttpService({"/ok": Route("GET", lambda body: plain(200, "ok"))})
        port = await service.start(HOST, 0)
        client = Client(*await asyncio.open_connection(HOST, port))
        assert (await client.send("GET", "/ok")).status == 200
        left = await asyncio.wait_for(client.reader.read(), scaled(10))
        await client.close()
        await service.stop(1)
        return left

    assert asyncio.run(main()) == b""


def test_an_answer_that_takes_too_long_or_that_nobody_waits_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_service, "REQUEST_SECONDS", 0.1)

    async def main() -> Any:
        let_go = asyncio.Event()

        async def later(body: Any) -> Any:
            await let_go.wait()
            return plain(200, "ok")

        service = HttpService(
            {"/later": Route("GET", later), "/ok": Route("GET", lambda body: plain(200, "ok"))}
        )
        port = await service.start(HOST, 0)
        patient, impatient = [Client(*await asyncio.open_connection(HOST, port)) for _ in range(2)]
        await impatient.write(head("GET", "/later", {"Host": "a"}))
        while not service.in_flight:
            await asyncio.sleep(0.005)
        impatient.writer.transport.abort()
        answer = await patient.send("GET", "/later")
        let_go.set()
        after = await patient.send("GET", "/ok")
        await patient.close()
        await service.stop(1)
        return answer, after, service.in_flight

    answer, after, in_flight = asyncio.run(main())
    assert (answer.status, answer.text) == (408, "the request took longer than 0.1 s\n")
    assert (after.status, after.text) == (200, "ok\n")
    assert in_flight == 0
    assert not caplog.records
