"""The plugin's process beside a kubelet that restarts, forgets, refuses, and a pool that goes and comes."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from bitfusion_device_plugin.plugin.registration import SOCKET_NAMES
from tests.bitfusion_device_plugin.plugin.fake_kubelet import FakeKubelet, unread_stream
from tests.bitfusion_device_plugin.plugin.running_plugin import FakePool, RunningPlugin
from tests.support.flood import HEADER, SILENT, Flood, answers_during, peak_mib
from tests.support.machine import scaled
from tests.support.waiting import wait_until, wait_until_settled

Start = Callable[..., RunningPlugin]
SOCKET, OTHER_SOCKET = SOCKET_NAMES


@pytest.fixture
def folder() -> Iterator[Path]:
    """The kubelet's, with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="bft-", dir="/tmp") as place:
        yield Path(place)


@pytest.fixture
def pool(tmp_path: Path) -> FakePool:
    pool = FakePool(tmp_path)
    pool.has(2)
    return pool


@pytest.fixture
def start(folder: Path, pool: FakePool, tmp_path: Path) -> Iterator[Start]:
    running: list[RunningPlugin] = []

    def begin(options: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> RunningPlugin:
        running.append(RunningPlugin(folder, pool, tmp_path / f"log{len(running)}", options, environ))
        return running[-1]

    yield begin
    for plugin in running:
        plugin.end()


@pytest.fixture(params=["watcher", "classic"])
def kubelet(request: pytest.FixtureRequest, folder: Path) -> Iterator[FakeKubelet]:
    kubelet = FakeKubelet(folder, classic=request.param == "classic")
    kubelet.start()
    yield kubelet
    kubelet.stop()


def _way(kubelet: FakeKubelet) -> str:
    return f"--registration={'classic' if kubelet.classic else 'watcher'}"


def _wait_for(kubelet: FakeKubelet, units: int, plugin: RunningPlugin) -> None:
    wait_until(lambda: kubelet.allocatable == units, plugin.log.read_text, 20)


def test_units_of_the_pool_are_offered_and_handed_out(kubelet: FakeKubelet, start: Start) -> None:
    plugin = start([_way(kubelet), "--overcommit=1.5"])
    _wait_for(kubelet, 300, plugin)
    answer = kubelet.allocate(["unit-0", "unit-299"], ["unit-7"])
    assert len(answer.container_responses) == 2
    assert not kubelet.options().pre_start_required
    assert plugin.metric("allocated_units_total") == 3
    assert plugin.metric('units{health="healthy"}') == 300
    assert plugin.metric("streams") == 1
    assert plugin.get("/readyz") == (200, "ok")
    assert plugin.get("/healthz") == (200, "ok")
    assert plugin.get("/")[0] == 404


def test_a_unit_that_there_is_not_is_refused_in_words(kubelet: FakeKubelet, start: Start) -> None:
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 200, plugin)
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.allocate(["unit-200"])
    assert '"unit-200" is none of the 200 units of bitfusion.io/gpu that the pool has' in str(refused.value)
    assert plugin.metric("refused_allocations_total") == 1


def test_a_pool_that_is_away_offers_nothing_and_comes_back(
    kubelet: FakeKubelet, start: Start, pool: FakePool
) -> None:
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 200, plugin)
    pool.is_away()
    _wait_for(kubelet, 0, plugin)
    assert kubelet.capacity == 200  # kept, unhealthy: pods that run keep their units
    told = plugin.wait_for("the pool does not answer")
    assert told["reason"] == "the client ended with status 1: Error: no server in the pool answers"
    pool.has(3)
    _wait_for(kubelet, 300, plugin)
    assert kubelet.registrations == 1  # all over one stream


def test_a_pool_that_is_away_at_the_start_is_waited_for(
    kubelet: FakeKubelet, start: Start, pool: FakePool
) -> None:
    pool.is_away()
    plugin = start([_way(kubelet)])
    plugin.wait_for("the pool does not answer")
    wait_until(lambda: kubelet.endpoint, plugin.log.read_text)
    assert kubelet.capacity == 0
    pool.has(1)
    _wait_for(kubelet, 100, plugin)


def test_a_pool_that_shrinks_takes_its_last_units_away(
    kubelet: FakeKubelet, start: Start, pool: FakePool
) -> None:
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 200, plugin)
    pool.has(1)
    _wait_for(kubelet, 100, plugin)
    assert kubelet.capacity == 100


def test_a_pool_that_comes_back_is_seen_soon_however_seldom_it_is_asked(
    kubelet: FakeKubelet, start: Start, pool: FakePool
) -> None:
    pool.is_away()
    plugin = start([_way(kubelet), "--probe-every=3600"])
    plugin.wait_for("the pool does not answer")
    pool.has(2)
    _wait_for(kubelet, 200, plugin)


def test_a_kubelet_that_does_not_read_misses_what_was_replaced(
    folder: Path, start: Start, pool: FakePool
) -> None:
    """And keeps nothing from others: another reader has every change."""
    kubelet = FakeKubelet(folder)
    kubelet.start()
    try:
        pool.has(900)  # a message of 2 MB, which gRPC does not send ahead
        plugin = start()
        _wait_for(kubelet, 90_000, plugin)
        with unread_stream(folder / SOCKET) as stream:
            wait_until(lambda: plugin.metric("streams") == 2, plugin.log.read_text)
            for gpus in range(901, 925):
                pool.has(gpus)
                _wait_for(kubelet, 100 * gpus, plugin)
            read: list[int] = []
            while not read or read[-1] != 92_400:
                read.append(len(next(stream).devices))
        assert len(read) < 25  # gRPC keeps up to some ten, as its window grows
        wait_until(lambda: plugin.metric("streams") == 1, plugin.log.read_text)
    finally:
        kubelet.stop()


def test_it_needs_no_folder_for_temporary_files(kubelet: FakeKubelet, start: Start, tmp_path: Path) -> None:
    """So a full one does no harm."""
    plugin = start([_way(kubelet)], {"TMPDIR": str(tmp_path / "none"), "HOME": str(tmp_path / "none")})
    _wait_for(kubelet, 200, plugin)
    assert plugin.get("/readyz") == (200, "ok")


def test_a_path_that_is_too_long_for_a_socket_is_told_in_one_line(start: Start, folder: Path) -> None:
    long = folder / ("x" * (107 - len(str(folder)) - len(SOCKET) - 1))
    long.mkdir()
    plugin = start([f"--plugins-registry={long}"])
    assert plugin.process.wait(scaled(30)) == 1
    last = plugin.log.read_text().splitlines()[-1]
    told = f"bitfusion-device-plugin: No socket can be created in {long}: its path {long}/.{SOCKET}."
    assert last.startswith(told)
    assert "bytes, and at most 107 are possible. What to do: " in last
    assert "mount the kubelet's folder at a shorter path" in last


def test_a_kubelet_that_restarts_has_the_units_again(kubelet: FakeKubelet, start: Start) -> None:
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 200, plugin)
    kubelet.stop()
    kubelet.start()
    _wait_for(kubelet, 200, plugin)


def test_a_killed_plugin_is_replaced_by_the_next(kubelet: FakeKubelet, start: Start) -> None:
    first = start([_way(kubelet)])
    _wait_for(kubelet, 200, first)
    first.kill()
    _wait_for(kubelet, 0, first)
    second = start([_way(kubelet)])
    _wait_for(kubelet, 200, second)


def test_the_next_after_a_killed_plugin_is_taken_in_the_kubelets_first_look(
    folder: Path, start: Start
) -> None:
    kubelet = FakeKubelet(folder)  # looks when it is told to
    try:
        for name, left in ((SOCKET, OTHER_SOCKET), (OTHER_SOCKET, SOCKET), (SOCKET, OTHER_SOCKET)):
            plugin = start()
            wait_until((folder / name).exists, plugin.log.read_text, 20)
            assert not (folder / left).exists()
            kubelet.look(20)
            _wait_for(kubelet, 200, plugin)
            plugin.kill()
            _wait_for(kubelet, 0, plugin)
    finally:
        kubelet.stop()


def test_a_plugin_that_was_forgotten_makes_itself_known(kubelet: FakeKubelet, start: Start) -> None:
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 200, plugin)
    kubelet.forget()
    wait_until(lambda: kubelet.registrations == 2, plugin.log.read_text)
    _wait_for(kubelet, 200, plugin)


def test_a_socket_that_was_removed_is_made_again(kubelet: FakeKubelet, start: Start, folder: Path) -> None:
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 200, plugin)
    (folder / SOCKET).unlink()
    plugin.wait_for("the socket is gone and is created again")
    wait_until(lambda: kubelet.registrations == 2, plugin.log.read_text)
    _wait_for(kubelet, 200, plugin)


@pytest.mark.long
@pytest.mark.parametrize("ends", ["first", "second"])
def test_of_two_plugins_one_serves_and_the_other_takes_over(folder: Path, start: Start, ends: str) -> None:
    kubelet = FakeKubelet(folder)
    kubelet.start()
    try:
        first = start()
        _wait_for(kubelet, 200, first)
        second = start()
        first.wait_for("another plugin serves the kubelet; this one is on standby")
        _wait_for(kubelet, 200, second)
        wait_until_settled(lambda: kubelet.registrations, 3.0)  # no quarrel; more than 2 where one is slow
        assert first.get("/readyz") == (200, "ok")
        left = second if ends == "first" else first
        assert (first if ends == "first" else second).end() == 0
        kubelet.forget()  # as it does on such an occasion
        _wait_for(kubelet, 200, left)
    finally:
        kubelet.stop()


def test_a_plugin_that_hangs_is_replaced(folder: Path, start: Start, tmp_path: Path) -> None:
    """Its socket still accepts connections, and nobody answers."""
    kubelet = FakeKubelet(folder)
    kubelet.start()
    try:
        plugin = start()
        _wait_for(kubelet, 200, plugin)
        with socket.socket(socket.AF_UNIX) as hanging:
            hanging.bind(str(folder / ".hangs"))
            hanging.listen()
            (folder / ".hangs").rename(folder / SOCKET)
            plugin.wait_for("the socket is gone and is created again")
            _wait_for(kubelet, 200, plugin)
        assert not plugin.said("another plugin serves the kubelet; this one is on standby")
    finally:
        kubelet.stop()


def test_5000_units_reach_a_kubelet(kubelet: FakeKubelet, start: Start, pool: FakePool) -> None:
    pool.has(50)
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 5000, plugin)
    assert len(kubelet.allocate([f"unit-{n}" for n in range(5000)]).container_responses) == 1


def test_a_fixed_number_of_units_asks_no_pool(kubelet: FakeKubelet, start: Start, pool: FakePool) -> None:
    pool.is_away()
    plugin = start([_way(kubelet), "--units=70"])
    _wait_for(kubelet, 70, plugin)


def test_a_refusal_of_the_kubelet_is_told(folder: Path, start: Start) -> None:
    kubelet = FakeKubelet(folder, refuses="no handler registered for plugin type")
    kubelet.start()
    try:
        plugin = start()
        told = plugin.wait_for("the kubelet refuses the plugin")
        assert told["reason"] == "no handler registered for plugin type"
        assert plugin.get("/readyz") == (503, "not ready: the kubelet has not accepted the plugin")
    finally:
        kubelet.stop()


def test_without_a_kubelet_the_classic_way_tries_again(folder: Path, start: Start) -> None:
    plugin = start(["--registration=classic"])
    plugin.wait_for("the kubelet cannot be informed of the plugin")
    kubelet = FakeKubelet(folder, classic=True)
    kubelet.start()
    try:
        _wait_for(kubelet, 200, plugin)
    finally:
        kubelet.stop()


def test_sigterm_ends_it_in_order_with_a_stream_open_and_takes_its_socket_away(
    kubelet: FakeKubelet, start: Start, folder: Path
) -> None:
    plugin = start([_way(kubelet)])
    _wait_for(kubelet, 200, plugin)
    assert plugin.end() == 0
    assert plugin.said("ended")
    assert {path.name for path in folder.iterdir()} <= {"kubelet.sock"}


def test_sigterm_ends_it_while_the_pool_is_slow(start: Start, pool: FakePool) -> None:
    pool.says("sleep 600")
    plugin = start()
    plugin.wait_for("serving")
    assert plugin.end() == 0


def test_a_folder_that_is_missing_is_told_in_one_line(start: Start, folder: Path) -> None:
    plugin = start([f"--plugins-registry={folder}/none"])
    assert plugin.process.wait(scaled(30)) == 1
    last = plugin.log.read_text().splitlines()[-1]
    assert last == (
        f"bitfusion-device-plugin: No socket can be created in {folder}/none: No such file or directory. "
        "What to do: mount the kubelet's folder there, writable for this user, or name another one."
    )
    others = [line for line in plugin.log.read_text().splitlines()[:-1] if not line.startswith("{")]
    assert not others  # nothing of gRPC's own


def test_folders_at_both_names_are_told_in_one_line(start: Start, folder: Path) -> None:
    for name in SOCKET_NAMES:
        (folder / name).mkdir()
    plugin = start()
    assert plugin.process.wait(scaled(30)) == 1
    assert plugin.log.read_text().splitlines()[-1] == (
        f"bitfusion-device-plugin: No socket can be created in {folder}: {folder / SOCKET} is a folder. "
        "What to "
        "do: remove it."
    )


def test_a_folder_that_vanishes_ends_it_so_that_its_container_starts_anew(start: Start, folder: Path) -> None:
    registry = folder / "registry"
    registry.mkdir()
    plugin = start([f"--plugins-registry={registry}"])
    wait_until((registry / SOCKET).exists, plugin.log.read_text, 20)
    shutil.rmtree(registry)
    assert plugin.process.wait(scaled(30)) == 1
    assert f"No socket can be created in {registry}: " in plugin.log.read_text().splitlines()[-1]


def test_silent_and_slow_clients_keep_nobody_from_an_answer(start: Start) -> None:
    plugin = start()
    port = plugin.wait_for("serving")["monitoring_port"]
    address = ("127.0.0.1", int(str(port)))
    with ExitStack() as stack:
        for said in (b"", b"GET", b"GET /metrics HTTP/1.1\r\n") * 10:
            client = stack.enter_context(socket.create_connection(address))
            client.sendall(said)
        assert plugin.get("/healthz") == (200, "ok")
        client.settimeout(scaled(20))
        assert client.recv(1) == b""  # is cut off
    assert plugin.get("/healthz") == (200, "ok")


@pytest.mark.parametrize("say", [SILENT, pytest.param(HEADER, marks=pytest.mark.long)])
def test_a_crowd_of_connections_keeps_nobody_from_an_answer(start: Start, say: str) -> None:
    """Sixty-four that said nothing were all there could be: a kubelet's probe was cut off, for seconds."""
    plugin = start()
    where = ("127.0.0.1", int(str(plugin.wait_for("serving")["monitoring_port"])))

    def ask() -> None:
        with socket.create_connection(where, scaled(10), ("127.0.0.2", 0)) as other:
            other.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert other.recv(1 << 10).endswith(b"ok")

    with Flood(where, 10_000, say) as flood:
        slowest = answers_during(flood, ask)
        assert plugin.get("/healthz") == (200, "ok")  # also from where the crowd comes from
        assert plugin.metric('connections_closed_total{reason="too_many"}') > 0
        assert len(os.listdir(f"/proc/{plugin.process.pid}/fd")) < 200
    assert slowest < scaled(2)
    assert peak_mib(plugin.process.pid) < 100  # its container may have 128


def test_a_request_that_is_none_hurts_nobody(start: Start) -> None:
    plugin = start()
    port = plugin.wait_for("serving")["monitoring_port"]
    for said in (b"\r\n\r\n", b"x" * 100_000, b"POST /metrics HTTP/1.1\r\n\r\n", b"\xff \xff\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", int(str(port)))) as client:
            client.settimeout(scaled(20))
            try:
                client.sendall(said)
                client.recv(1 << 16)
            except ConnectionError:
                pass
    assert plugin.get("/healthz") == (200, "ok")
    assert plugin.get("/metrics?name=x")[0] == 200


def test_a_client_that_is_missing_is_told_in_one_line(start: Start, tmp_path: Path) -> None:
    plugin = start([f"--client={tmp_path}/nothing"])
    assert plugin.process.wait(scaled(30)) == 1
    last = plugin.log.read_text().splitlines()[-1]
    assert last.startswith("bitfusion-device-plugin: ")
    assert f"looked at {tmp_path}/nothing. What to do: correct the path" in last


def test_a_port_that_is_taken_is_told_in_one_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plugin = start([f"--monitoring-port={taken.getsockname()[1]}"])
        assert plugin.process.wait(scaled(30)) == 1
        port = taken.getsockname()[1]
    assert plugin.log.read_text().splitlines()[-1] == (
        f"bitfusion-device-plugin: Port {port} of 127.0.0.1 is in use. What to do: stop the program that "
        "uses it, or choose another port with --monitoring-port."
    )
