"""The port between the API server and webhooks whose replicas are ready is closed: who is told."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_cluster.webhooks.self_check import REACHABLE, UNREACHABLE
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import Room
from tests.cluster.test_injector_outage import asking_pod
from tests.notebook_controller_patch.controller_process import CONTROLLER, INJECTOR
from tests.notebook_controller_patch.installation import Installation
from tests.support.ports import free_port
from tests.support.waiting import wait_until

HALF = {"bitfusion.io/gpu-50": "1"}
MANAGED = "auto-management/bitfusion"


@pytest.fixture
def silent() -> Iterator[int]:
    """A port behind a firewall: whoever connects waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def told(installed: Installation) -> list[Object]:
    events = installed.cluster.client.get(f"/api/v1/namespaces/{installed.namespace}/events")["items"]
    return [each for each in events if each["involvedObject"]["kind"] == "Service"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_controllers_port_is_behind_a_firewall(
    cluster: Cluster, tmp_path: Path, silent: int, capsys: pytest.CaptureFixture[str]
) -> None:
    room = Room(cluster)
    with Installation(cluster, tmp_path) as installed:
        installed.call_port(silent, timeoutSeconds=1)
        replica = installed.start("--self-check-every=1")
        replica.wait_ready()
        began = time.monotonic()
        # All is well to look at: only whoever makes a Notebook waits, and gets it without annotations.
        assert MANAGED not in (room.create("early", limits=HALF)["metadata"].get("annotations") or {})
        wait_until(lambda: replica.metric("bitfusion_admission_reachable") == 0, replica.log.read_text, 30)
        (event,) = wait_until(lambda: told(installed), "an Event", 10)
        seconds = time.monotonic() - began
        assert replica.ask("/readyz") == (200, "ok\n")
        assert (event["reason"], event["type"]) == (UNREACHABLE, "Warning")
        assert event["involvedObject"]["name"] == installed.name
        assert "context deadline exceeded" in event["message"]
        assert f"TCP port {replica.port} of its pods" in event["message"]
        (line,) = replica.logged("the API server does not reach the webhooks")
        assert "context deadline exceeded" in line["reason"]

        installed.call(replica, timeoutSeconds=30)
        wait_until(lambda: replica.metric("bitfusion_admission_reachable") == 1, replica.log.read_text, 30)
        wait_until(lambda: [each["reason"] for each in told(installed)].count(REACHABLE) == 1, limit_s=10)
        assert MANAGED in room.create("late", limits=HALF)["metadata"]["annotations"]
        # Nothing of all this was stored, and nobody else was asked.
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{installed.namespace}/leases"
        names = [each["metadata"]["name"] for each in cluster.client.get(leases)["items"]]
        assert names == [installed.name]
    with capsys.disabled():
        print(f"\nself-check every second, calls of 1 s: a closed port told {seconds:.1f} s after ready")


@pytest.mark.timeout(120)
def test_the_injectors_port_is_closed_and_opened(cluster: Cluster, tmp_path: Path) -> None:
    room = Room(cluster)
    with Installation(cluster, tmp_path, name="bitfusion-injector", module=INJECTOR) as installed:
        replica = installed.started("--self-check-every=1")
        wait_until(lambda: replica.metric("bitfusion_admission_reachable") == 1, replica.log.read_text, 30)
        assert told(installed) == []
        installed.call_port(free_port())
        wait_until(lambda: replica.metric("bitfusion_admission_reachable") == 0, replica.log.read_text, 30)
        (event,) = wait_until(lambda: told(installed), "an Event", 10)
        assert "connection refused" in event["message"]
        assert "No pod that asks for GPUs can be created" in event["message"]
        with pytest.raises(Refused, match="failed calling webhook"):
            room.client.create(room.pods, asking_pod("mine"))
        assert replica.ask("/readyz")[0] == 200
        installed.call(replica)
        wait_until(lambda: replica.metric("bitfusion_admission_reachable") == 1, replica.log.read_text, 30)
        wait_until(lambda: len(told(installed)) == 2, "the end is told", 10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "module"),
    [("bitfusion-notebook-controller", CONTROLLER), ("bitfusion-injector", INJECTOR)],
    ids=["controller", "injector"],
)
def test_beside_webhooks_of_an_older_version_nothing_is_claimed(
    cluster: Cluster, tmp_path: Path, name: str, module: str
) -> None:
    with Installation(cluster, tmp_path, name=name, module=module) as installed:
        webhooks = cluster.client.get(installed.webhooks_path)["webhooks"]
        last = {"op": "remove", "path": f"/webhooks/{len(webhooks) - 1}"}
        cluster.client.patch(installed.webhooks_path, [last])
        replica = installed.started("--self-check-every=1")
        counted = ("bitfusion_admission_self_checks_total", "not_asked")
        wait_until(lambda: replica.metric(counted[0], result=counted[1]) >= 3, replica.log.read_text, 30)
        assert replica.metric("bitfusion_admission_reachable") == -1
        assert told(installed) == []
