"""Units of `bitfusion.io/gpu` on a test's node, for tests that want some and no pool.

A kubelet leaves an extended resource alone that it doesn't know, and sets one to 0 by itself that a device
plugin has offered before. Other tests of the same node install our plugin, so nobody writes units into the
status of a node: the plugin offers these, too.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from fractions import Fraction
from pathlib import Path

from bitfusion_client.request.quantities import parse_quantity, quantity_to_count
from tests.cluster.api_client import ApiClient
from tests.cluster.cluster import Cluster, fetch
from tests.cluster.components import Component
from tests.support.ports import free_port
from tests.support.waiting import wait_until

RESOURCE = "bitfusion.io/gpu"
"""A hundredth of a GPU of the pool each."""
_COMMAND = os.path.join(os.path.dirname(sys.executable), "bitfusion-device-plugin")


class UnitsWithoutPool:
    """What offers a number of units on one node, beside the node; made by the node, ended with it."""

    def __init__(self, cluster: Cluster, node: str, registry: Path) -> None:
        """`registry` is the folder that the node's kubelet watches."""
        self._cluster = cluster
        self._node = node
        self._registry = registry
        self._running: Component | None = None

    def offer(self, count: int) -> None:
        """Offer `count` from now on; the scheduler knows it then. 0: none."""
        if not count and self._running is None:
            return
        self.end()
        if count:
            self._running = self._plugin(count)
            self._running.start()
        wait_for(self._cluster.client, self._node, count)

    def end(self) -> None:
        """Stop offering, whether the node still runs or not."""
        if self._running is not None:
            self._running.stop(signal.SIGTERM)
            self._running = None

    def _plugin(self, count: int) -> Component:
        port = free_port()
        listen = ("--bind=127.0.0.1", f"--monitoring-port={port}")
        return self._cluster.component(
            f"units-of-{self._node}",
            [_COMMAND, f"--units={count}", f"--plugins-registry={self._registry}", *listen],
            lambda: fetch(f"http://127.0.0.1:{port}/readyz") == "ok",
        )


def allocatable(client: ApiClient, node: str) -> int:
    """How many units the scheduler takes the node to have."""
    status = client.get(f"/api/v1/nodes/{node}")["status"]
    return quantity_to_count(status["allocatable"].get(RESOURCE, "0"))


def wait_for(client: ApiClient, node: str, count: int) -> None:
    """Until the node offers so many; its kubelet writes it every 2 s in these tests."""
    wait_until(
        lambda: allocatable(client, node) == count,
        lambda: f"{node} offers {allocatable(client, node)} units of {RESOURCE} and not {count}",
        60,
    )


def allocated(cluster: Cluster, node: str) -> dict[str, Fraction]:
    """What all pods of a node ask for together, as `kubectl describe node` adds it up."""
    _, _, table = cluster.kubectl("describe", "node", node).partition("\nAllocated resources:\n")
    rows = re.findall(r"^  (\S+) +(\S+) ", table.partition("\nEvents:")[0], re.MULTILINE)
    return {name: Fraction(*parse_quantity(asked)) for name, asked in rows if asked[0].isdigit()}


def holders(client: ApiClient) -> list[str]:
    """The pods that have a node and count units of it, as namespace/name."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in client.get("/api/v1/pods")["items"]
        if pod["spec"].get("nodeName")
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
        and any(RESOURCE in each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    ]
