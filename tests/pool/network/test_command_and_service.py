"""The `bitfusion` command, a service that runs, and a network between them that is cut."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_client.version import PACKAGE, VERSION
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import client_text, servers_text
from bitfusion_pool.ledger.entries import HELD, REMOTE, WAITING
from bitfusion_pool.messages.from_client import Acquire
from bitfusion_pool.messages.from_service import Granted, Waiting
from tests.pool.client.network_user import SLEEPER, home_of, keeper_of, network_user, program_of
from tests.pool.network.cutting_proxy import CuttingProxy
from tests.pool.pool_client import PoolClient, finish, uniform, until_told_to_wait
from tests.pool.service.tls_client import HOST, NetworkService, half
from tests.support.machine import scaled
from tests.support.processes import alive, freeze, wait_until_gone
from tests.support.waiting import wait_until

BEAT_S = scaled(0.4)
SLOW = "60", "480"  # gives nothing away as long as a test lasts
LIMIT_S = 30.0
MOST_S = 3600.0  # that the settings allow


@pytest.fixture
def base() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def times(request: pytest.FixtureRequest) -> tuple[str, str]:
    """How long a lease outlives its connection, and silence."""
    found: tuple[str, str] = getattr(request, "param", SLOW)
    return found


@pytest.fixture
def service(base: Path, times: tuple[str, str]) -> Iterator[NetworkService]:
    closed_s, silent_s = (f"{min(MOST_S, scaled(float(time))):g}" for time in times)
    options = "--closed-s", closed_s, "--silent-s", silent_s, "--heartbeat-s", f"{BEAT_S:g}"
    running = NetworkService(base, *options)
    running.start()
    yield running
    running.end()


@pytest.fixture
def network(service: NetworkService) -> Iterator[CuttingProxy]:
    with CuttingProxy(service.port) as proxy:
        yield proxy


@pytest.fixture
def user(client: PoolClient, service: NetworkService, network: CuttingProxy) -> PoolClient:
    """A user whose token is ada's, and who reaches the service through `network`."""
    write_files(client, service, network.port)
    return network_user(client)


def write_files(client: PoolClient, service: NetworkService, *ports: int) -> None:
    folder = home_of(client) / ".bitfusion"
    folder.mkdir()
    (folder / "servers.conf").write_text(servers_text([Address(HOST, port) for port in ports]))
    (folder / "client.yaml").write_text(client_text(service.token("ada")))
    shutil.copy(service.authority, folder / "ca.crt")


def until_waiting(service: NetworkService, count: int) -> None:
    wait_until(lambda: sum(one.state == WAITING for one in service.entries()) == count, limit_s=LIMIT_S)


def hold_both(user: PoolClient) -> subprocess.Popen[str]:
    return user.start("run", "-n", "2", *SLEEPER[3:])


def end(process: subprocess.Popen[str], program: int) -> str:
    """End the program in order; what its command wrote to stderr."""
    os.kill(program, signal.SIGTERM)
    _, err = finish(process)
    assert process.returncode == 128 + signal.SIGTERM
    return err


def reset_and_dialed(network: CuttingProxy) -> None:
    """Reset all connections, and wait for a new one."""
    accepted = network.accepted
    network.reset()
    wait_until(lambda: network.accepted > accepted, "a new connection", LIMIT_S)


def out_of_reach(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if "out of reach" in line)


def test_a_run_says_and_does_what_it_does_in_the_own_pool(user: PoolClient, service: NetworkService) -> None:
    words = ("run", "-n", "2", "-p", "0.5", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 4")
    served = user.do(*words)
    own = user.do(*words, env={"BITFUSION_POOL": "own", "BITFUSION_POOL_DIR": str(user.folder)})
    assert (served.returncode, served.stdout) == (own.returncode, own.stdout) == (4, "\n")
    assert uniform(served.stderr) == uniform(own.stderr)
    assert service.entries() == []


def test_a_lease_is_remote_and_shown_to_others_as_simulated(
    user: PoolClient, service: NetworkService
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    (entry,) = service.entries()
    assert (entry.state, entry.kind, entry.holder.user) == (HELD, REMOTE, "ada")
    shown = user.do("list_gpus").stdout
    assert "(Simulated Tesla V100-PCIE-16GB)" in shown
    assert "held by ada: sh -c" in shown
    assert "simulated GPUs" in user.do("smi").stdout.splitlines()[0]
    end(process, program)
    assert service.entries() == []


def test_the_holder_of_a_token_is_shown_the_whole_pool(
    user: PoolClient, service: NetworkService, network: CuttingProxy
) -> None:
    with service.client() as here, service.remote(service.token("bob")) as there:
        here.acquire(GpuRequest(1), "here.ipynb")
        there.ask(half(), Granted)
        waiting = there.ask(Acquire(GpuRequest(2), label="later.ipynb"), Waiting)
        shown = user.admin("status")
        data = json.loads(user.admin("status", "--json").stdout)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[0] == (
        f"GPU pool of the service at {network.address}, {PACKAGE} {VERSION}, simulated GPUs"
    )
    assert "│ here.ipynb │ 1 GPU" in shown.stdout
    assert re.search(r"│ bob +│ far.ipynb +│ 1 GPU × 50 % │", shown.stdout)
    assert re.search(rf"│ +1 │ bob +│ later.ipynb │ 2 GPUs  │ +\d+ s │ {waiting.entry} │", shown.stdout)
    assert (data["folder"], data["of_service"], data["software"]) == (network.address, True, VERSION)
    assert [lease["kind"] for lease in data["leases"]] == ["process", "remote"]
    assert [(one["user"], one["position"]) for one in data["waiting"]] == [("bob", 1)]


def test_whose_token_was_revoked_is_shown_nothing(user: PoolClient, service: NetworkService) -> None:
    service.revoke("ada")
    shown = user.admin("status")
    assert (shown.returncode, shown.stdout) == (1, "")
    last = shown.stderr.splitlines()[-1]
    assert last.endswith(" What to do: ask the administrator of this pool for a new token"), shown.stderr


def test_a_reset_network_costs_no_lease(
    user: PoolClient, service: NetworkService, network: CuttingProxy
) -> None:
    process = user.start(*SLEEPER)
    program, keeper = program_of(process), keeper_of(process.pid)
    (before,) = service.entries()
    for _ in range(3):
        reset_and_dialed(network)
    assert [one.entry_id for one in service.entries()] == [before.entry_id]
    end(process, program)
    # a command does not wait for a pool that it could not reach when it ended: the keeper gives back
    wait_until(lambda: service.entries() == [], limit_s=LIMIT_S)
    wait_until_gone(keeper, limit_s=LIMIT_S)  # it hears of it over the proxy, which ends with the test


def test_a_cut_is_told_and_so_is_its_end(
    user: PoolClient, service: NetworkService, network: CuttingProxy
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    network.hold()
    warning = out_of_reach(process)
    assert re.fullmatch(
        rf"\[WARN\] \S+ Pool {network.address} is out of reach: .*; the program is ended in \d+ s "
        r"unless it comes back\n",
        warning,
    )
    network.flow()
    assert process.stderr is not None
    back = next(line for line in process.stderr if "is back" in line)
    assert re.fullmatch(rf"\[INFO\] \S+ Pool {network.address} is back after \d+ s\n", back)
    assert alive(program)
    assert len(service.entries()) == 1
    end(process, program)
    assert service.entries() == []


def test_connections_that_a_router_forgot_are_replaced(
    user: PoolClient, service: NetworkService, network: CuttingProxy
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    accepted = network.accepted
    network.strand()
    wait_until(lambda: network.accepted > accepted, "a new connection", LIMIT_S)
    end(process, program)
    assert service.entries() == []


@pytest.mark.parametrize("times", [("2", "8")], indirect=True)
def test_a_network_that_stays_reset_ends_the_program_before_another_gets_its_gpus(
    user: PoolClient, service: NetworkService, network: CuttingProxy
) -> None:
    process = hold_both(user)
    program = program_of(process)
    with service.client() as other:
        other.wait()
        network.refuse()
        network.reset()
        _, err = finish(process)
        assert not alive(program)
        assert re.fullmatch(
            rf"Error: pool {network.address} was out of reach for \d+ s, so the program was ended: "
            "its GPUs may be given to others",
            err.splitlines()[-1],
        )
        assert [one.state for one in service.entries()] == [HELD, WAITING]
        other.expect(Granted)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_of_the_service_keeps_leases_and_places(
    user: PoolClient, service: NetworkService, number: int
) -> None:
    process = hold_both(user)
    program = program_of(process)
    waiter = user.start("run", "-n", "1", "--", "echo", "mine")
    until_told_to_wait(waiter)
    before = [one.entry_id for one in service.entries()]
    service.end(number)
    service.start()
    wait_until(lambda: [one.entry_id for one in service.entries()] == before, limit_s=LIMIT_S)
    end(process, program)
    out, _ = finish(waiter)
    assert out == "mine\n"
    assert service.entries() == []


@pytest.mark.parametrize("victim", ["wrapper", "keeper", "program"])
def test_sigkill_of_one_of_them_leaves_no_lease_that_should_go(
    user: PoolClient, service: NetworkService, victim: str
) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    keeper = keeper_of(process.pid)
    os.kill({"wrapper": process.pid, "keeper": keeper, "program": program}[victim], signal.SIGKILL)
    if victim == "keeper":
        keeper_of(process.pid, but=keeper)
        assert alive(program)
        end(process, program)
    else:
        finish(process)
        wait_until_gone(program)
    service.until_entries(0)
    # of a service that ends before it has heard the answer it goes on telling that the lease is over
    wait_until_gone(keeper)


@pytest.mark.parametrize("times", [("60", "60")], indirect=True)
def test_a_frozen_keeper_is_replaced_and_the_lease_lives(user: PoolClient, service: NetworkService) -> None:
    process = user.start(*SLEEPER)
    program = program_of(process)
    keeper = keeper_of(process.pid)
    freeze(keeper)
    keeper_of(process.pid, but=keeper)
    assert alive(program)
    assert len(service.entries()) == 1
    end(process, program)
    assert service.entries() == []


def test_reservations_are_used_and_ended(user: PoolClient, service: NetworkService) -> None:
    assert user.do("request_gpus", "-n", "1").returncode == 0
    (entry,) = service.entries()
    for _ in range(2):
        done = user.do("client", "--", "printenv", "BITFUSION_POOL_LEASE")
        assert done.stdout == f"{entry.entry_id}\n", done.stderr
    assert "Released GPUs on 1 servers" in user.do("release_gpus").stderr
    assert service.entries() == []


def test_a_run_of_another_service_is_released_by_its_file(user: PoolClient, service: NetworkService) -> None:
    process = user.start(*SLEEPER)
    program_of(process)
    assert process.stderr is not None
    path = next(line.split("'")[1] for line in process.stderr if "saved to" in line)
    user.do("release_gpus", "-f", path)
    _, err = finish(process)
    assert process.returncode == 128 + signal.SIGTERM
    assert "has ended the lease, so the program was ended" in err.splitlines()[-1]
    assert service.entries() == []


def test_a_place_in_the_queue_survives_a_hiccup(
    user: PoolClient, service: NetworkService, network: CuttingProxy
) -> None:
    with service.client() as holder:
        granted = holder.acquire(GpuRequest(2))
        waiter = user.start("run", "-n", "1", "--", "echo", "mine")
        until_told_to_wait(waiter)
        (place,) = (one.entry_id for one in service.entries() if one.state == WAITING)
        reset_and_dialed(network)
        assert place in [one.entry_id for one in service.entries()]
        holder.release(granted)
        assert finish(waiter)[0] == "mine\n"
    service.until_entries(0)


@pytest.mark.parametrize("times", [("60", "480")], indirect=True)
def test_a_wait_that_is_interrupted_leaves_the_queue_at_once(
    user: PoolClient, service: NetworkService
) -> None:
    with service.client() as holder:
        holder.acquire(GpuRequest(2))
        waiter = user.start("run", "-n", "1", "--", "true")
        until_waiting(service, 1)
        waiter.send_signal(signal.SIGINT)
        finish(waiter)
        assert waiter.returncode == 130
        until_waiting(service, 0)
