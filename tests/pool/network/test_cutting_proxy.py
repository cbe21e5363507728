"""What the other tests rely on: each fault of the network is seen by the ends that it should be seen by."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.pool.network.cutting_proxy import MOST_BYTES, MOST_LINKS, CuttingProxy, Side
from tests.support.machine import scaled
from tests.support.waiting import wait_until

QUIET_S = 0.2
"""For how long nothing must come."""


class Ends:
    """A server that a test holds in its hand, and the two ends of each connection made to it."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(scaled(10))
        self.proxy = CuttingProxy(self.listener.getsockname()[1])
        self.opened: list[socket.socket] = []

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=scaled(10))
        self.opened.append(client)
        service, _ = self.listener.accept()
        service.settimeout(scaled(10))
        self.opened.append(service)
        return client, service


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    with made.proxy:
        yield made
        for each in made.opened:
            each.close()
        made.listener.close()


def quiet(end: socket.socket) -> bool:
    """Whether nothing comes, no byte and no end."""
    end.settimeout(QUIET_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(scaled(10))
    return False


def is_reset(proxy: CuttingProxy) -> bool:
    """Whether a new connection is reset, be it while it is made."""
    try:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=scaled(10)) as client:
            return client.recv(1) == b"?"
    except ConnectionResetError:
        return True


def test_bytes_and_ends_pass_both_ways(ends: Ends) -> None:
    client, service = ends.connect()
    client.sendall(b"hello")
    assert service.recv(9) == b"hello"
    service.sendall(b"welcome")
    assert client.recv(9) == b"welcome"
    client.shutdown(socket.SHUT_WR)
    assert service.recv(9) == b""
    service.sendall(b"still here")
    assert client.recv(99) == b"still here"
    service.close()
    assert client.recv(9) == b""
    wait_until(lambda: ends.proxy.links == 0, "the link is forgotten")


def test_what_is_held_arrives_when_it_flows_again(ends: Ends) -> None:
    client, service = ends.connect()
    ends.proxy.hold()
    client.sendall(b"from client")
    service.sendall(b"from service")
    assert quiet(client)
    assert quiet(service)
    ends.proxy.flow()
    assert service.recv(99) == b"from client"
    assert client.recv(99) == b"from service"


@pytest.mark.parametrize("held", Side)
def test_one_direction_can_be_held_alone(ends: Ends, held: Side) -> None:
    client, service = ends.connect()
    silent, heard = (client, service) if held is Side.CLIENT else (service, client)
    ends.proxy.hold(held)
    silent.sendall(b"lost for now")
    heard.sendall(b"arrives")
    assert silent.recv(99) == b"arrives"
    assert quiet(heard)


def test_a_close_that_is_held_is_not_seen(ends: Ends) -> None:
    client, service = ends.connect()
    ends.proxy.hold()
    client.close()
    assert quiet(service)
    ends.proxy.flow()
    assert service.recv(9) == b""


def test_a_new_connection_hangs_while_bytes_are_held(ends: Ends) -> None:
    ends.proxy.hold()
    with socket.create_connection(("127.0.0.1", ends.proxy.port), timeout=scaled(10)) as client:
        client.sendall(b"hello")
        assert quiet(client)
        assert ends.proxy.accepted == 0
        ends.proxy.flow()
        service, _ = ends.listener.accept()
        with service:
            assert service.recv(9) == b"hello"


def test_stranded_connections_never_come_back_and_new_ones_pass(ends: Ends) -> None:
    client, service = ends.connect()
    ends.proxy.strand()
    client.sendall(b"lost")
    service.sendall(b"lost")
    ends.proxy.flow()
    assert quiet(client)
    assert quiet(service)
    other_client, other_service = ends.connect()
    other_client.sendall(b"hello")
    assert other_service.recv(9) == b"hello"
    client.close()
    assert quiet(service), "the end of one side is lost, too"
    service.close()
    wait_until(lambda: ends.proxy.links == 1, "the stranded link is forgotten")


def test_a_reset_is_told_to_both_ends(ends: Ends) -> None:
    client, service = ends.connect()
    ends.proxy.reset()
    for end in (client, service):
        with pytest.raises(ConnectionResetError):
            end.recv(1)


@pytest.mark.parametrize("told", Side)
def test_a_drop_is_told_to_one_end(ends: Ends, told: Side) -> None:
    client, service = ends.connect()
    told_end, other = (client, service) if told is Side.CLIENT else (service, client)
    ends.proxy.drop(told)
    with pytest.raises(ConnectionResetError):
        told_end.recv(1)
    other.sendall(b"into nothing")
    assert quiet(other)


def test_refused_connections_are_refused_and_old_ones_stay(ends: Ends) -> None:
    client, service = ends.connect()
    ends.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ends.proxy.port), timeout=scaled(10))
    client.sendall(b"old")
    assert service.recv(9) == b"old"
    ends.proxy.accept()
    new, new_service = ends.connect()
    new.sendall(b"new")
    assert new_service.recv(9) == b"new"


def test_a_service_that_is_away_refuses_through_the_proxy(ends: Ends) -> None:
    ends.listener.close()
    assert is_reset(ends.proxy)


def test_delayed_bytes_come_late_and_in_order(ends: Ends) -> None:
    client, service = ends.connect()
    ends.proxy.delay(QUIET_S)
    began = time.monotonic()
    client.sendall(b"one")
    time.sleep(0.02)  # two pieces
    client.sendall(b"two")
    received = b""
    while len(received) < 6:
        received += service.recv(99)
    assert received == b"onetwo"
    assert time.monotonic() - began >= QUIET_S


def test_a_reader_that_stands_still_fills_no_memory_and_stops_nobody_else(ends: Ends) -> None:
    client, service = ends.connect()
    client.setblocking(False)
    sent = 0
    while select.select([], [client], [], QUIET_S)[1]:  # both sockets and the link become full
        sent += client.send(b"x" * 65536)
    other_client, other_service = ends.connect()
    other_client.sendall(b"hello")
    assert other_service.recv(9) == b"hello"
    flows = [flow.kept for link in ends.proxy._links for flow in link.flows.values()]
    assert max(flows) <= MOST_BYTES + 65536
    client.setblocking(True)
    received = 0
    while received < sent:
        received += len(service.recv(1 << 20))


def test_more_links_than_allowed_are_reset(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_LINKS >= 1000
    monkeypatch.setattr("tests.pool.network.cutting_proxy.MOST_LINKS", 2)
    ends.connect()
    ends.connect()
    assert is_reset(ends.proxy)


def test_nothing_is_left_of_it() -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with CuttingProxy(listener.getsockname()[1]) as proxy:
            client = socket.create_connection(("127.0.0.1", proxy.port), timeout=scaled(10))
            service, _ = listener.accept()
            proxy.hold()
            client.sendall(b"on the way")
        for end in (client, service):
            with end, pytest.raises(ConnectionResetError):
                end.recv(1)
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors
