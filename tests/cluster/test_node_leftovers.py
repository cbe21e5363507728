"""Nothing of a node is left on the machine: after an end, after a failure, after a killed run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import NODE, binaries
from tests.cluster.box import leftovers
from tests.cluster.cluster import Cluster
from tests.cluster.components import ComponentFailed, marked_processes
from tests.cluster.node import Node
from tests.cluster.pods import Pods
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long
ROOT = Path(__file__).parent.parent.parent

# Two nodes on one machine, each with a pod; tells what there is of them, and stays.
RUN = """
import json, sys, time
from tests.cluster.binaries import NODE, binaries
from tests.cluster.cluster import Cluster
from tests.cluster.node import Node
from tests.cluster.pods import Pods

cluster = Cluster.start(binaries(), nodes=["n1", "n2"])
nodes = [Node(cluster, binaries(parts=NODE), name).start() for name in ("n1", "n2")]
for node in nodes:
    pods = Pods(node, cluster.new_namespace())
    pods.run("p", "exec /bin/busybox sleep 1000", on_node=node.name)
boxes = [[[str(each) for each in node.cgroups()], str(node.folder), node.link] for node in nodes]
print(json.dumps({"cluster": str(cluster.folder), "boxes": boxes, "left": [n.leftovers() for n in nodes]}))
sys.stdout.flush()
time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def where_nodes_run(node: Node) -> None:
    """Skipped, or failed, as all tests of nodes."""


@pytest.mark.apart
def test_a_killed_run_with_two_nodes_leaves_nothing() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        told = json.loads(run.stdout.readline() or "{}")
        run.kill()
    for lines in told["left"]:
        assert sum(line.startswith("process ") for line in lines) >= 6, "box, relay, containerd, kubelet, pod"
        assert any(line.startswith("cgroup ") for line in lines)
        assert any(line.startswith("network device ") for line in lines)

    def left() -> list[str]:
        found = [f"process {pid}" for pid in marked_processes(Path(told["cluster"]))]
        for cgroups, folder, link in told["boxes"]:
            found += leftovers([Path(each) for each in cgroups], Path(folder), link)
        return found

    wait_until(lambda: not left(), left, 30)
    wait_until(lambda: not Path(told["cluster"]).exists(), limit_s=10)


@pytest.fixture
def own(node: Node) -> Iterator[Cluster]:
    """A cluster that a test may spoil the nodes of."""
    cluster = Cluster.start(node.cluster.binaries, nodes=["n1"])
    yield cluster
    cluster.end()


def test_a_node_that_does_not_start_leaves_nothing(own: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Node(own, binaries(parts=NODE))
    config = broken.folder / "containerd.toml"

    def spoiled() -> Path:
        config.write_text("this is no TOML")
        return config

    monkeypatch.setattr(broken, "_containerd_config", spoiled)
    with pytest.raises(ComponentFailed, match=r"n1-containerd ended; its last lines:\n(?s:.*)TOML"):
        broken.start()
    assert broken.leftovers() == []
    assert not broken.folder.exists()


def test_the_machines_settings_are_not_the_nodes(node: Node) -> None:
    """A kubelet sets the machine's panic and overcommit; a CNI plugin turns forwarding on, for a pod."""
    pods = Pods(node, node.cluster.new_namespace())
    pods.run("p", "exec /bin/busybox sleep 1000")
    mounted = node.in_box("cat", "/proc/self/mountinfo")
    assert f"{node.folder}/state" in mounted
    for setting, wanted in (("kernel/panic", "10"), ("vm/overcommit_memory", "1")):
        assert node.in_box("cat", f"/proc/sys/{setting}").strip() == wanted
        assert f" {node.folder}/kernel/{setting.replace('/', '.')} /proc/sys/{setting} " in mounted
    assert str(node.folder) not in Path("/proc/self/mountinfo").read_text()
    assert node.in_box("cat", "/proc/sys/net/ipv4/ip_forward") == "1\n"
    pods.delete("p")


def test_a_box_whose_first_process_is_killed_takes_everything_along(own: Cluster) -> None:
    with Node(own, binaries(parts=NODE)) as node:
        pods = Pods(node, own.new_namespace())
        pods.run("p", "exec /bin/busybox sleep 1000", on_node=node.name)
        os.kill(node.first_pid, signal.SIGKILL)
        wait_until(lambda: not [x for x in node.leftovers() if "cgroup" not in x], node.leftovers, 20)
    assert node.leftovers() == []
