"""From a notebook's first cell to its result in a GPU pod, beside a bare pod of the same image; real nodes.

``python -m benchmarks.gpu_pods [--pairs 7]``: two nodes of the test cluster, one with GPUs of a plugin of the
tests, all installed from `manifests/`. First cells of new kernels and bare pods on the same node, with the
same GPU and the image there, are made in turns, one at a time. A bare pod's start ends when the API server
tells that it runs. Needs root, and minutes when the images were never built.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.measure import AtMostMore, Row, interleave
from benchmarks.table import format_table
from tests.cluster.binaries import CONTROL_PLANE, NODE, binaries
from tests.cluster.gpu_cluster import GpuNotebook, GpuUser, gpus_installed
from tests.cluster.gpu_plugin import GPU
from tests.cluster.installation import NOTEBOOK_IMAGE
from tests.cluster.live_kernel import LiveKernel
from tests.cluster.node import cluster_with_nodes, why_no_node
from tests.cluster.pods import SECURITY
from tests.support.waiting import wait_until

TOPIC = "gpu_pods"
PAIRS = 7
FIRST, BARE = "first cell", "bare pod"
MOST_MORE_S = 1.0
LONGEST_S = 120


def first_cell(user: GpuUser, notebook: GpuNotebook) -> float:
    """Seconds from a new kernel's first cell to its result."""
    with LiveKernel(notebook.jupyter()) as kernel:
        time.sleep(2)  # a person reads, and the kernel's own processes have started
        cell = kernel.run("6 * 7")
        if not cell.text.endswith("42\n"):
            raise RuntimeError(f"the cell ended with {cell.all}")
    user.wait_no_gpu_pod()
    return cell.seconds


def bare_pod(user: GpuUser, number: int) -> float:
    """Seconds from a pod's creation until it is told to run; it holds a GPU as ours do, and sleeps."""
    name, path = f"bare-{number}", f"/api/v1/namespaces/{user.namespace}/pods"
    container = {
        "name": "main",
        "image": NOTEBOOK_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "1000"],
        "securityContext": SECURITY,
        "resources": {"limits": {GPU: "1", "cpu": "2", "memory": "3Gi"}, "requests": {"cpu": "100m"}},
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"key": GPU, "operator": "Exists"}],
    }
    client = user.cluster.client
    query = {"fieldSelector": f"metadata.name={name}", "timeoutSeconds": LONGEST_S}
    with client.watch(path, **query) as watch:
        began = time.monotonic()
        client.create(path, {"metadata": {"name": name}, "spec": spec})
        for event in watch:
            if event["object"].get("status", {}).get("phase") == "Running":
                break
        else:
            raise RuntimeError(f"no pod was told to run within {LONGEST_S} s")
        seconds = time.monotonic() - began
    client.delete(f"{path}/{name}")
    wait_until(lambda: not client.exists(f"{path}/{name}"), "the bare pod is gone", 60)
    return seconds


def measure(user: GpuUser, pairs: int) -> list[Row]:
    """The row: so many first cells, and as many bare pods, in turns."""
    notebook = user.notebook("mine")
    numbers = iter(range(2 * pairs + 2))
    ways: dict[str, Callable[[], float]] = {
        FIRST: lambda: first_cell(user, notebook),
        BARE: lambda: bare_pod(user, next(numbers)),
    }
    for way in ways.values():  # the first ones read the image from the disk
        way()
    taken = interleave(ways, pairs, lambda way: way())
    what = "first cell of a kernel -> its result; plain: bare pod created -> Running"
    return [Row(TOPIC, what, "s", taken[FIRST], taken[BARE], AtMostMore(MOST_MORE_S))]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_pods", description=__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"of each (default {PAIRS})")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all samples there")
    options = parser.parse_args(arguments)
    reason = why_no_node()
    if reason is not None:
        _say(reason)
        return 1
    control_plane, node_parts = binaries(_say, CONTROL_PLANE), binaries(_say, NODE)
    with (
        cluster_with_nodes(control_plane, node_parts, ["n2"]) as nodes,
        gpus_installed(nodes, _say) as gpus,
        gpus.user() as user,
    ):
        before = os.getloadavg()[0]
        rows = measure(user, options.pairs)
    print(format_table(rows))
    print(f"medians of n, taken in turns; load {before:.2f} before, {os.getloadavg()[0]:.2f} at the end")
    if options.json:
        options.json.write_text(json.dumps([each.to_json() for each in rows], indent=1) + "\n")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
