"""What a pool on the network is called: as its client reaches it, not as its own machine calls itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.command.client_reports import parse_health
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.client.pools.reached_names import ReachedNames, is_loopback
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import WAITING, Entry, Holder
from bitfusion_pool.messages.from_client import Acquire, Look
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Waiting
from bitfusion_pool.messages.message import Message
from tests.pool.client.fake_network_service import SECRET, FakeNetworkService, welcome
from tests.pool.client.fake_service import SERVER, WELCOME, lease
from tests.pool.client.network_user import home_of, network_user
from tests.pool.pool_client import PoolClient
from tests.support.certificates import certified
from tests.support.machine import scaled

REACHED = Address("gpu.example", 7000)
GPU = (Device(0, "Simulated T4", 16000),)
SECOND = Server("server1", "127.0.0.2", 56001, GPU)
CHOSEN = Server("rack7", "127.0.0.3", 56001, GPU)
ELSEWHERE = Server("server3", "10.0.0.7", 56001, GPU)


def welcomed(*servers: Server, reached: Address = REACHED) -> tuple[ReachedNames, tuple[Server, ...]]:
    names = ReachedNames(reached)
    shown = names.from_service(type(WELCOME)(1, "pool", "id", True, servers))
    assert isinstance(shown, type(WELCOME))
    return names, shown.servers


def test_servers_that_a_pool_knows_as_its_own_machine_are_called_as_they_are_reached() -> None:
    _, shown = welcomed(SERVER, SECOND, CHOSEN, ELSEWHERE)
    assert [server.key for server in shown] == [
        "gpu.example:7000",
        "gpu.example:7001",
        "gpu.example:7002",
        "10.0.0.7:56001",
    ]
    assert [server.shown_name for server in shown] == [
        "gpu.example:7000",
        "gpu.example:7001",
        "rack7 gpu.example:7002",
        "10.0.0.7:56001",
    ]


def test_an_address_with_colons_is_one() -> None:
    _, (shown,) = welcomed(SERVER, reached=Address("2001:db8::1", 56001))
    assert shown.key == "[2001:db8::1]:56001"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.1.1"])
def test_on_the_pools_own_machine_nothing_is_renamed(host: str) -> None:
    assert is_loopback(host)
    _, shown = welcomed(SERVER, reached=Address(host, 7000))
    assert shown == (SERVER,)


def test_whatever_the_service_says_is_renamed_and_what_is_asked_is_turned_back() -> None:
    names, (shown,) = welcomed(SERVER)
    entry = lease()
    granted = names.from_service(Granted(entry, SERVER, SECRET))
    assert isinstance(granted, Granted)
    assert granted.server == shown
    assert {share.server for share in granted.entry.shares} == {*granted.entry.servers} == {shown.key}
    pool = PoolSnapshot(1.0, 1.0, (SERVER,), (entry,), 0, (Share(SERVER.key, 0, 1),))
    seen = names.from_service(pool)
    assert SERVER.key not in str(seen)
    assert isinstance(names.from_service(Waiting(1, 1, f"GPU of {SERVER.key}")), Waiting)
    refused = names.from_service(Refused("never", f"there are {SERVER.key}"))
    assert refused == Refused("never", f"there are {shown.key}")
    asked = GpuRequest(1, filters=(("server.addr", "gpu.example"),), servers=(shown.key, "gpu.example", "x"))
    sent = names.to_service(Acquire(asked))
    assert isinstance(sent, Acquire)
    assert sent.request.servers == (SERVER.key, SERVER.address, "x")
    assert sent.request.filters == (("server.addr", SERVER.address),)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeNetworkService]:
    running = FakeNetworkService(tmp_path / "service", welcome(60.0, 480.0, scaled(0.3)))
    holder = Holder("later.ipynb", "bob", 8, "host", 1001)
    request = GpuRequest(1, servers=(SERVER.key,))
    waiting = Entry(2, "f" * 16, WAITING, "process", request, holder, (SERVER.key,), 1.0, None, None)
    shown = PoolSnapshot(1.0, 1.0, (SERVER,), (lease(), waiting), 0, (Share(SERVER.key, 0, 0),))

    def answer(message: Message) -> Message | None:
        return shown if isinstance(message, Look) else running.grant(message)

    running.answer = answer
    running.start(certified("service", ["0.0.0.0"], signed_by=running.authority))
    yield running
    running.stop()


@pytest.fixture
def user(client: PoolClient, service: FakeNetworkService) -> PoolClient:
    """Reaches it at 0.0.0.0, which leads to this machine and is no name of its own."""
    service.write_files(home_of(client), Address("0.0.0.0", service.port))
    return network_user(client)


def test_no_command_calls_a_pool_on_the_network_local(user: PoolClient, service: FakeNetworkService) -> None:
    place = f"0.0.0.0:{service.port}"
    run = user.do("run", "-n", "1", "--server_list", place, "--", "printenv", "BITFUSION_POOL_DEVICES")
    assert run.returncode == 0
    assert f'"server":"{place}"' in run.stdout.replace(" ", "")
    assert f"Server List: {place}" in run.stderr
    (asked,) = [message for message in service.heard if isinstance(message, Acquire)]
    assert asked.request.servers == (SERVER.key,)
    status, listed, table = user.admin("status"), user.do("list_gpus"), user.do("smi")
    assert f"│ {place} │" in status.stdout
    assert f"- server 0 [{place}]: running 1 tasks" in listed.stdout
    assert f"│ {place} │" in table.stdout
    health = user.do("health")
    assert [section.name for section in parse_health(health.stdout).sections] == [place, "localhost"]
    assert "Check GPUs: 1 GPUs" in health.stdout
    for done in (run, status, user.admin("status", "--json"), listed, table, health):
        said = done.stdout + done.stderr
        assert "127.0.0.1" not in said
        assert "local" not in said.replace("Health report for localhost", "").replace("/.local/", "")
