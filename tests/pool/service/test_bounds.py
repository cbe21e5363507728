"""Bounds: bad, long, slow, many; one user's flood beside another's work."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Alive, Cancel, Hello, Look
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Released
from bitfusion_pool.messages.message import LONGEST_FROM_CLIENT
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient, connected
from tests.support.machine import scaled
from tests.support.waiting import wait_until

ANSWERS = 100
"""To one user while another floods the service; each must come within the client's time limit."""


@pytest.fixture
def limited(base: Path) -> Iterator[RunningService]:
    """A service with small limits."""
    running = RunningService(
        base,
        *("--leases-per-user", "3", "--gpus-per-user", "4", "--waiting-per-user", "1"),
        *("--connections-per-user", "5"),
    )
    yield running.start()
    running.end()


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"\n", "this is not a message from a pool's client: it is not JSON"),
        (b"GET / HTTP/1.1\r\n", "this is not a message from a pool's client: it is not JSON"),
        (b"\x16\x03\x01\x02\x00\n", "this is not a message from a pool's client: it is not JSON"),
        (b'{"type": "hello"}\n', "this is not a message from a pool's client: hello: protocol is missing"),
        (Look().format(), "the first message of a client is hello"),
        (b'{"type": "acquire", "request": {"gpus": 0}}\n', "the first message of a client is hello"),
        (
            b"x" * (LONGEST_FROM_CLIENT + 1),
            f"a message has at most {LONGEST_FROM_CLIENT} bytes, this one has more",
        ),
    ],
)
def test_what_is_no_hello_is_refused_in_words_and_the_connection_ends(
    service: RunningService, sent: bytes, words: str
) -> None:
    with SocketClient(service.socket) as client:
        client.socket.sendall(sent)
        refused = client.expect(Refused)
        assert refused.code == refusal_codes.BAD_MESSAGE
        assert refused.message == words
        assert client.receive() is None


def test_a_second_request_while_one_waits_ends_the_connection(service: RunningService) -> None:
    with service.client() as holder, service.client() as client:
        holder.acquire(GpuRequest(2))
        client.wait(GpuRequest(2))
        client.send(Acquire(GpuRequest(2)))
        assert client.expect(Refused).message == "this connection waits for GPUs already"
        service.until_entries(1)


def test_who_says_nothing_is_sent_away(service: RunningService) -> None:
    with SocketClient(service.socket) as client:
        refused = client.expect(Refused)
        assert refused.code == refusal_codes.TOO_SLOW
        assert refused.message == "no hello came within 5 seconds"
        assert client.receive() is None


def test_messages_may_come_in_pieces_or_all_at_once(service: RunningService) -> None:
    with SocketClient(service.socket) as client:
        for byte in Hello(1).format():
            client.socket.sendall(bytes([byte]))
        client.receive()
        client.socket.sendall(Alive().format() * 300)
        for _ in range(300):
            assert client.receive() == Alive()


def test_limits_of_a_user_are_refused_in_words(limited: RunningService) -> None:
    clients = [limited.client() for _ in range(4)]
    try:
        clients[0].acquire(GpuRequest(2))
        clients[1].wait(GpuRequest(1))
        refused = clients[2].ask(Acquire(GpuRequest(1)), Refused)
        assert refused.code == refusal_codes.OVER_LIMIT
        assert refused.message == "one user of this pool may have 1 waiting requests, and you have 1"
        assert refused.next_step == "end something of yours first; `bitfusion smi` shows who holds what"
        refused = clients[2].ask(Acquire(GpuRequest(2)), Refused)
        assert refused.message == (
            "one user of this pool may have 4 GPUs, you have or wait for 3, and this request is for 2"
        )
        clients[0].close()
        clients[1].expect(Granted)
        clients[2].acquire(GpuRequest(1, 0.5))
        clients[2].acquire(GpuRequest(1, 0.1))
        refused = clients[2].ask(Acquire(GpuRequest(1, 0.1)), Refused)
        assert refused.message == (
            "one user of this pool may have 3 leases, waiting requests included, and you have 3"
        )
    finally:
        for client in clients:
            client.close()


def test_connections_of_a_user_are_limited_and_freed(limited: RunningService) -> None:
    clients = [limited.client() for _ in range(5)]
    try:
        with SocketClient(limited.socket) as another:
            refused = another.expect(Refused)
            assert refused.code == refusal_codes.TOO_MANY
            assert refused.message == ("one user may have 5 connections to this pool, and you have as many")
        clients.pop().close()
        # the service hears of the end a little later than we
        clients.append(wait_until(limited.client, "a free place", errors=(AssertionError, OSError)))
    finally:
        for client in clients:
            client.close()


def test_who_reads_nothing_fills_no_memory_of_ours(service: RunningService) -> None:
    holders = [service.client() for _ in range(40)]
    try:
        for holder in holders:
            holder.send(Acquire(GpuRequest(2), label="x" * 60))
        service.until_entries(40)
        before = memory(service.pid)
        with connected(service.socket) as deaf:
            deaf.socket.settimeout(0.5)
            with pytest.raises(TimeoutError):
                deaf.socket.sendall(Look().format() * 1_000_000)
            grown = memory(service.pid) - before
            assert grown < 4 << 20
            with service.client() as other:
                other.ask(Look(), PoolSnapshot)
    finally:
        for holder in holders:
            holder.close()


def memory(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


BAD_LINES = (
    b"\n",
    b"{}\n",
    b"\xff\xfe\n",
    b'{"type":"acquire"}\n',
    b"[" * 5000 + b"\n",
    b"x" * (LONGEST_FROM_CLIENT + 10),
    b'{"type":"hello","protocol":2}\n',
    b'{"type":"hel',
)


def send_bad(path: str, count: int, begin: int = 0) -> None:
    """So many connections, each with something bad; returns once each has been refused."""
    for number in range(begin, begin + count):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.connect(path)
            try:
                one.sendall(BAD_LINES[number % len(BAD_LINES)])
                if number % len(BAD_LINES) < len(BAD_LINES) - 1:
                    one.recv(1 << 12)
            except OSError:  # it has been refused already
                pass


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.long)])
def test_bad_messages_leave_memory_flat_and_others_served(base: Path, count: int) -> None:
    service = RunningService(base, "--messages-per-user", "100000").start()
    try:
        _flood_and_look(service, count)
    finally:
        service.end()


def _flood_and_look(service: RunningService, count: int) -> None:
    send_bad(service.socket, 1000)
    before, files = memory(service.pid), open_files(service.pid)
    flood = threading.Thread(target=send_bad, args=(service.socket, count - 1000, 1000))
    slowest = 0.0
    with service.client() as other:
        flood.start()
        while flood.is_alive():
            began = time.monotonic()
            other.ask(Alive(), Alive)
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.005)
    flood.join()
    grown = memory(service.pid) - before
    print(
        f"{count - 1000} bad messages: {grown / 1024:.0f} KiB more, "
        f"slowest answer to another {slowest * 1000:.1f} ms"
    )
    assert grown < 2 << 20
    # it hears of the last ends a little later than we
    wait_until(lambda: open_files(service.pid) <= files + 2, lambda: open_files(service.pid))
    # no log of a line for each
    assert sum(line["message"] == "refused" for line in service.log) < 100


def flood_acquires(path: str, goes_on: Callable[[], bool]) -> None:
    """Ask and cancel as fast as the answers come, on several connections."""
    clients = [connected(path) for _ in range(20)]
    while goes_on():
        for client in clients:
            client.send(Acquire(GpuRequest(2)))
            client.send(Look())
            client.send(Cancel())
        for client in clients:
            client.expect(PoolSnapshot)
            client.expect(Released)
    for client in clients:
        client.close()


def flood_connections(path: str, goes_on: Callable[[], bool]) -> None:
    number = 0
    while goes_on():
        send_bad(path, 50, number)
        number += 50


def flood_bytes(path: str, goes_on: Callable[[], bool]) -> None:
    """Small messages as many as fit, on one connection that reads only now and then."""
    while goes_on():
        with connected(path) as client:
            client.socket.settimeout(0.01)
            try:
                while goes_on():
                    try:
                        client.socket.sendall(Alive().format() * 500)
                        client.socket.recv(1 << 16)
                    except TimeoutError:
                        pass
            except OSError:  # sent away: only a part of a message had gone out
                pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the attacker is another user")
@pytest.mark.parametrize("flood", [flood_acquires, flood_connections, flood_bytes])
def test_one_users_flood_keeps_no_other_user_waiting(
    service: RunningService, flood: Callable[[str, Callable[[], bool]], None]
) -> None:
    fork = multiprocessing.get_context("fork")
    rounds, over = fork.Value("i", 0), fork.Event()

    def goes_on() -> bool:
        rounds.value += 1
        return not over.is_set()

    with service.client() as holder:
        holder.acquire(GpuRequest(2))
        attacker = fork.Process(target=as_user, args=(54321, flood, service.socket, goes_on))
        attacker.start()
        slowest, answers = 0.0, 0
        with service.client() as other:
            wait_until(lambda: rounds.value > 1, "the flood's first round")
            while answers < ANSWERS:
                assert attacker.is_alive()
                began = time.monotonic()
                other.ask(Alive(), Alive)
                slowest = max(slowest, time.monotonic() - began)
                answers += 1
                time.sleep(0.005)
        over.set()
        attacker.join(scaled(20))
        assert attacker.exitcode == 0
        print(f"{flood.__name__}: {answers} answers to another user, the slowest {slowest * 1000:.1f} ms")


def as_user(uid: int, work: Callable[..., None], *values: object) -> None:
    """Do something as another user, in a process that may be lost."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    work(*values)
