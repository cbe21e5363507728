"""The plugin beside a real kubelet: whatever dies or restarts, the node offers the pool's units again.

On a node of its own: a kubelet that has known a device plugin no longer leaves the resource to those who
write it into the node's status, as other tests do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from bitfusion_client.request.quantities import quantity_to_count
from tests.bitfusion_device_plugin.plugin.running_plugin import FakePool, RunningPlugin
from tests.cluster.binaries import CONTROL_PLANE, NODE, binaries
from tests.cluster.cluster import Cluster
from tests.cluster.node import NODE_NAME, Node, cluster_with_node
from tests.cluster.pods import Pods
from tests.support.processes import read_process
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SLEEP = "exec /bin/busybox sleep 100000"
LIMIT_S = 60.0  # for what takes 4 s on a calm machine
AS_INSTALLED = ("--probe-every=15", "--probe-away-every=1")  # the plugin's own defaults
Start = Callable[..., RunningPlugin]


@pytest.fixture(scope="module")
def own_node(node: Node) -> Iterator[Node]:
    """Another than all tests', whose fixture has built what it is made of."""
    with cluster_with_node(binaries(parts=CONTROL_PLANE), binaries(parts=NODE)) as own:
        yield own


@pytest.fixture
def pool(tmp_path: Path) -> FakePool:
    pool = FakePool(tmp_path)
    pool.has(2)
    return pool


@pytest.fixture
def start(own_node: Node, pool: FakePool, tmp_path: Path) -> Iterator[Start]:
    running: list[RunningPlugin] = []
    folder = own_node.plugins_registry

    def begin(options: Sequence[str] = ()) -> RunningPlugin:
        log = tmp_path / f"log{len(running)}"
        running.append(RunningPlugin(folder, pool, log, [*AS_INSTALLED, *options]))
        return running[-1]

    yield begin
    for plugin in running:
        plugin.end()


@pytest.fixture
def first(own_node: Node, start: Start) -> RunningPlugin:
    """A plugin that offers the node's 200 units."""
    plugin = start()
    _wait_until_known(plugin)
    _wait_for(own_node, 200, plugin)
    return plugin


@pytest.fixture
def pod(own_node: Node, first: RunningPlugin) -> Iterator[Pods]:
    """A pod `holder` that has 50 of the node's 200 units, and runs."""
    pods = Pods(own_node, own_node.cluster.new_namespace())
    pods.run("holder", SLEEP, resources={"limits": {"bitfusion.io/gpu": "50"}})
    yield pods
    pods.delete("holder")


def _allocatable(node: Node) -> int:
    status = node.cluster.client.get(f"/api/v1/nodes/{node.name}")["status"]
    return quantity_to_count(status["allocatable"].get("bitfusion.io/gpu", "0"))


def _wait_for(node: Node, units: int, plugin: RunningPlugin) -> float:
    """Seconds until the node offers so many."""
    began = time.monotonic()
    wait_until(lambda: _allocatable(node) == units, plugin.log.read_text, LIMIT_S)
    return time.monotonic() - began


def _wait_until_known(plugin: RunningPlugin) -> float:
    """Seconds until the kubelet has its units; the status of the node, written later, may be an old one."""
    began = time.monotonic()
    wait_until(lambda: plugin.metric("streams") == 1, plugin.log.read_text, LIMIT_S)
    return time.monotonic() - began


def _run_another(pods: Pods, units: int) -> None:
    try:
        pods.run("another", SLEEP, resources={"limits": {"bitfusion.io/gpu": str(units)}})
    finally:
        pods.delete("another")


def _container(pods: Pods) -> tuple[str, int]:
    status = pods.get("holder")["status"]["containerStatuses"][0]
    return status["containerID"], status["restartCount"]


def _shims(node: Node) -> list[int]:
    """Containerd's, one for each pod of the node."""
    found = map(read_process, (int(entry) for entry in os.listdir("/proc") if entry.isdigit()))
    return [
        each.pid
        for each in found
        if each is not None and "containerd-shim" in each.command and str(node.folder) in each.command
    ]


def test_a_pool_that_goes_and_comes_back(
    own_node: Node, pod: Pods, first: RunningPlugin, pool: FakePool
) -> None:
    before = _container(pod)
    pool.is_away()
    print(f"pool gone, asked every 15 s: {_wait_for(own_node, 0, first):.1f} s")
    pool.has(2)
    print(f"pool back: {_wait_for(own_node, 200, first):.1f} s")
    pool.has(50)
    wait_until(lambda: first.metric('units{health="healthy"}') == 5000, first.log.read_text, LIMIT_S)
    print(f"5,000 units, from when the plugin knew: {_wait_for(own_node, 5000, first):.1f} s")
    assert _container(pod) == before


def test_of_two_plugins_the_one_that_serves_is_killed(
    own_node: Node, pod: Pods, first: RunningPlugin, start: Start
) -> None:
    before = _container(pod)
    second = start()
    _wait_until_known(second)
    first.wait_for("another plugin serves the kubelet; this one is on standby")
    second.kill()
    print(f"taken over by the other: {_wait_until_known(first):.1f} s")
    _run_another(pod, 150)
    _wait_for(own_node, 200, first)
    assert _container(pod) == before


def test_a_killed_plugin_starts_again(own_node: Node, pod: Pods, first: RunningPlugin, start: Start) -> None:
    before = _container(pod)
    first.kill()
    _wait_for(own_node, 0, first)
    second = start()
    print(f"plugin killed, offered again after its start: {_wait_for(own_node, 200, second):.1f} s")
    _run_another(pod, 150)
    assert _container(pod) == before


def test_a_kubelet_that_restarts(own_node: Node, pod: Pods, first: RunningPlugin) -> None:
    before, known = _container(pod), first.metric('registrations_total{result="registered"}')
    own_node.kubelet.restart()
    began = time.monotonic()
    wait_until(
        lambda: first.metric('registrations_total{result="registered"}') > known, first.log.read_text, LIMIT_S
    )
    _wait_until_known(first)
    print(f"kubelet restarted, registered: {time.monotonic() - began:.1f} s after it was ready")
    _wait_for(own_node, 200, first)
    _run_another(pod, 150)
    assert _container(pod) == before


def test_killed_shims_give_the_container_again_with_its_units(own_node: Node, pod: Pods) -> None:
    identity, restarts = _container(pod)
    shims = _shims(own_node)
    assert shims
    for shim in shims:
        os.kill(shim, signal.SIGKILL)
    began = time.monotonic()
    wait_until(
        lambda: _container(pod)[1] > restarts and pod.is_ready("holder"), lambda: pod.told("holder"), LIMIT_S
    )
    print(f"shims killed, the container runs again: {time.monotonic() - began:.1f} s")
    assert _container(pod)[0] != identity
    assert _allocatable(own_node) == 200


def test_the_classic_way(own_node: Node, pool: FakePool, tmp_path: Path) -> None:
    """In the folder of the kubelet's registration socket, which it empties when it starts."""
    folder = Path(f"/proc/{own_node.first_pid}/root/var/lib/kubelet/device-plugins")
    options = [*AS_INSTALLED, "--registration=classic"]
    plugin = RunningPlugin(folder, pool, tmp_path / "log", options)
    try:
        _wait_until_known(plugin)
        _wait_for(own_node, 200, plugin)
        known = plugin.metric('registrations_total{result="registered"}')
        own_node.kubelet.restart()
        began = time.monotonic()
        wait_until(
            lambda: plugin.metric('registrations_total{result="registered"}') > known,
            plugin.log.read_text,
            LIMIT_S,
        )
        _wait_until_known(plugin)
        _wait_for(own_node, 200, plugin)
        print(f"classic: kubelet restarted: {time.monotonic() - began:.1f} s after it was ready")
    finally:
        plugin.end()


@pytest.fixture
def usual_node(node: Node) -> Iterator[Node]:
    """One whose kubelet writes the node's status as seldom as every kubelet, unless it is told otherwise."""
    cluster = Cluster.start(binaries(parts=CONTROL_PLANE), nodes=[NODE_NAME])
    try:
        with Node(cluster, binaries(parts=NODE), status_every_s=10) as own:
            yield own
    finally:
        cluster.end()


@pytest.mark.apart
def test_with_the_kubelets_own_times(usual_node: Node, pool: FakePool, tmp_path: Path) -> None:
    def start(name: str) -> RunningPlugin:
        return RunningPlugin(usual_node.plugins_registry, pool, tmp_path / name, AS_INSTALLED)

    plugin = start("first")
    try:
        seen = {"plugin started": _wait_for(usual_node, 200, plugin)}
        pool.is_away()
        seen["pool gone, asked every 15 s"] = _wait_for(usual_node, 0, plugin)
        pool.has(2)
        seen["pool back"] = _wait_for(usual_node, 200, plugin)
        plugin.kill()
        seen["plugin killed"] = _wait_for(usual_node, 0, plugin)
        plugin = start("second")
        seen["plugin started again"] = _wait_for(usual_node, 200, plugin)
        known = plugin.metric('registrations_total{result="registered"}')
        usual_node.kubelet.restart()
        began = time.monotonic()
        wait_until(
            lambda: plugin.metric('registrations_total{result="registered"}') > known,
            plugin.log.read_text,
            LIMIT_S,
        )
        _wait_for(usual_node, 200, plugin)
        seen["kubelet restarted"] = time.monotonic() - began
    finally:
        plugin.end()
    for what, seconds in seen.items():
        print(f"status every 10 s: {what}: {seconds:.1f} s")
