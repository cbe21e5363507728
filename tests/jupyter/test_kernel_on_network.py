"""A Jupyter kernel whose GPUs are a pool's on the network: a cut that passes, and one that does not."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.client_files import client_text, servers_text
from bitfusion_pool.access.token_rules import TokenLimits
from bitfusion_pool.messages.from_service import Granted
from tests.jupyter.cells import wait_for_notice
from tests.jupyter.conftest import FIRST_CELL
from tests.jupyter.embedded_pool import CLIENT
from tests.jupyter.live_kernel import LiveKernel
from tests.jupyter.test_restart import WAYS, restart
from tests.pool.network.cutting_proxy import CuttingProxy
from tests.pool.service.tls_client import HOST, NetworkService, half
from tests.support.machine import scaled
from tests.support.waiting import wait_until

LIMIT_S = 40.0


class Place:
    """A service, the network before it, and a kernel of a user who has a token."""

    def __init__(self, service: NetworkService, network: CuttingProxy, kernel: LiveKernel) -> None:
        self.service = service
        self.network = network
        self.kernel = kernel


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernelspecs: Path, request: pytest.FixtureRequest
) -> Iterator[Place]:
    closed_s = min(400.0, scaled(getattr(request, "param", 30.0)))
    base = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))
    times = "--closed-s", f"{closed_s:g}", "--silent-s", f"{8 * closed_s:g}", "--heartbeat-s", "0.4"
    service = NetworkService(base, *times)
    service.start()
    home = tmp_path / "home"
    (home / ".bitfusion").mkdir(parents=True)
    with CuttingProxy(service.port) as network:
        (home / ".bitfusion/servers.conf").write_text(servers_text([Address(HOST, network.port)]))
        (home / ".bitfusion/client.yaml").write_text(client_text(service.token("ada")))
        shutil.copy(service.authority, home / ".bitfusion/ca.crt")
        for name in ("BITFUSION_POOL_DIR", "BITFUSION_POOL_CONFIG", "BITFUSION_POOL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(home))
        place = Place(service, network, LiveKernel(FIRST_CELL))
        try:
            yield place
        finally:
            place.kernel.stop()
            service.end()
            shutil.rmtree(base)


def test_a_cell_takes_its_gpu_over_the_network_and_outlives_a_cut(place: Place) -> None:
    place.kernel.connect()
    shown = place.kernel.run("import os; x = 41; print(os.environ['BITFUSION_POOL_DEVICES'])")
    assert '"simulated": true' in shown.stream()
    (before,) = place.service.entries()
    assert before.holder.user == "ada"
    accepted = place.network.accepted
    place.network.reset()
    wait_until(lambda: place.network.accepted > accepted, "a new connection", LIMIT_S)
    assert place.kernel.run("print(x + 1)").stream() == "42\n"
    place.service.end(signal.SIGKILL)
    place.service.start()
    same = [(before.entry_id, before.granted_at)]  # what its kernel does may have changed
    wait_until(
        lambda: [(one.entry_id, one.granted_at) for one in place.service.entries()] == same,
        lambda: place.service.entries(),
        LIMIT_S,
    )
    assert place.kernel.run("print(x + 2)").stream() == "43\n"
    place.kernel.stop()
    place.service.until_entries(0)


def test_a_cell_beyond_the_limit_in_units_says_what_is_allowed_and_runs_once_that_is_free(
    place: Place,
) -> None:
    """Also with two tokens of the name in force, as during a renewal: what the older one holds counts."""
    older = place.service.token("team", TokenLimits(units=100))
    newer = place.service.token("team", TokenLimits(units=100))
    (Path.home() / ".bitfusion/client.yaml").write_text(client_text(newer))
    place.kernel.connect()
    with place.service.remote(older) as other:
        granted = other.ask(half(), Granted)
        refused = place.kernel.run("print(1)")
        assert refused.error["ename"] == "OverLimit"
        for words in (
            "You have reached your limit in this pool.",
            "the name of your token may have 100 units, 100 are one GPU, you have or wait for 50, and this "
            "request is for 100",
            "end something of yours first; `bitfusion smi` shows who holds what",
        ):
            assert words in refused.error_text.replace("\n", " ")
        other.release(granted)
    assert place.kernel.run("print(2)").stream() == "2\n"


@pytest.mark.long
@pytest.mark.parametrize("place", [1.0], indirect=True)
def test_a_service_that_is_gone_for_ever_ends_the_kernel_and_its_cell_says_why(place: Place) -> None:
    place.kernel.connect()
    assert place.kernel.run("print(1)").stream() == "1\n"
    client = place.kernel.client
    cell = client.send("import time; time.sleep(600)")
    wait_until(lambda: place.service.entries(), "the lease", LIMIT_S)
    place.network.refuse()
    place.network.reset()
    client.pump(lambda: cell.of("error"), LIMIT_S, "the reason", lambda: cell.seen)
    assert cell.error["ename"] == "PoolLost"
    assert f"pool {place.network.address} was out of reach for" in cell.error_text


@pytest.fixture(params=["TLS", "socket"])
def over(place: Place, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Place:
    """The same, and on the service's own machine."""
    if request.param == "socket":
        monkeypatch.setenv("BITFUSION_POOL", place.service.socket)
        place.kernel.stop()
        place.kernel = LiveKernel(FIRST_CELL)
    return place


@contextlib.contextmanager
def another_who_waits(place: Place, gpus: int, mark: Path) -> Iterator[None]:
    """It leaves the file once it has its GPUs."""
    before = len(place.service.entries())
    waiter = subprocess.Popen(
        [CLIENT, "run", "-n", str(gpus), "--", "touch", str(mark)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: len(place.service.entries()) > before, "the other in the queue", LIMIT_S)
        yield
    finally:
        waiter.terminate()
        waiter.wait(scaled(10))


@pytest.mark.long
@pytest.mark.timeout(180)
def test_twenty_restarts_keep_the_lease_of_a_service_and_a_release_gives_it_back(over: Place) -> None:
    kernel, got = over.kernel, Path.home() / "got"
    kernel.run("%bitfusion request -n 2")
    kernel.run("x = 1")
    (before,) = over.service.entries()
    with another_who_waits(over, 2, got):
        for way in 5 * WAYS:
            in_time = restart(kernel, way)
            if not in_time and [each.entry_id for each in over.service.entries()][:1] != [before.entry_id]:
                return  # the machine stood still: it came too late
            assert kernel.run("'x' in globals()").result == "False"
            assert over.service.entries()[0].entry_id == before.entry_id
            assert over.service.entries()[0].granted_at == before.granted_at
        assert not got.exists()
        assert kernel.run("%bitfusion release -y").status == "ok"
        wait_until(got.exists, "the other's turn", LIMIT_S)


@pytest.mark.long
def test_restarts_while_waiting_keep_the_place_at_a_service(over: Place) -> None:
    kernel, got = over.kernel, Path.home() / "got"
    kernel.run("%bitfusion request -n 2")
    with over.service.remote(over.service.token("bob")) as other:
        granted = other.ask(half(), Granted)
        cell = kernel.client.send("'never'")
        wait_for_notice(kernel.client, cell)
        place = over.service.entries()[1].entry_id
        with another_who_waits(over, 2, got):
            for way in WAYS:
                if not restart(kernel, way) and over.service.entries()[1].entry_id != place:
                    return  # the machine stood still: it came too late
                cell = kernel.client.send("print('mine')")
                wait_for_notice(kernel.client, cell, "1 of 2")
                assert over.service.entries()[1].entry_id == place
            other.release(granted)
            kernel.client.finish(cell, LIMIT_S)
            assert cell.stream() == "mine\n"
            assert over.service.entries()[0].entry_id == place
            assert not got.exists()
