"""Cells of a kernel in a GPU pod beside the same kernel here: what the stream between them costs.

The pod is a namespace of this machine: pods of a cluster have a network between them besides. What a pod's
start costs is in `gpu_pods`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import output
from benchmarks.effort import Effort
from benchmarks.interrupt import ALONE, until_interrupted
from benchmarks.kernel_client import KernelClient
from benchmarks.measure import MILLISECOND, AtMost, AtMostMore, Row, SpeedAtLeast, interleave
from benchmarks.workplace import FIRST_CELL, Kernel, Variant, Workplace
from tests.pods.command.pods import CLIENT_SCRIPT, pods_in

TOPIC = "gpu_pod_cells"
HERE, POD = "here", "pod"
WARM_UP_CELLS = 20
GOALS = (0.7, 0.5)
"""Speeds of stdout and of large displays, as parts of that here."""
DISPLAYS = 30
"""Of 1 MB in one cell, at most."""


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Trivial cells, an interrupt, much stdout, large displays: a pod's beside those here."""
    with ExitStack() as stack:
        here = workplace.variant(FIRST_CELL)
        kernels: dict[str, tuple[Kernel, KernelClient]] = {}
        for name, variant in {HERE: here, POD: stack.enter_context(_in_pod(here))}.items():
            kernel = stack.enter_context(variant.kernel())
            client = stack.enter_context(kernel.client())
            client.join_iopub()
            for _ in range(WARM_UP_CELLS):
                client.execute("pass")
            kernels[name] = (kernel, client)
        clients = {name: client for name, (_, client) in kernels.items()}
        cells = interleave(clients, effort.cells, lambda client: client.execute("pass").seconds)
        interrupts = interleave(kernels, effort.interrupts, partial(until_interrupted, code=ALONE))
        what = "interrupt -> KeyboardInterrupt"
        rows = [
            Row(TOPIC, "trivial cell", "ms", cells[POD], cells[HERE], AtMostMore(2 * MILLISECOND)),
            Row(TOPIC, what, "ms", interrupts[POD], interrupts[HERE], AtMost(0.3, "ms")),
        ]
        some = replace(
            effort, volumes=2 * effort.volumes, large_displays=min(DISPLAYS, effort.large_displays)
        )
        for volume, goal in zip(output.volumes(some), GOALS, strict=False):
            judged = replace(volume, goal=SpeedAtLeast(goal))
            rows.append(output.row(TOPIC, judged, clients, POD, HERE, some))
        return rows


@contextmanager
def _in_pod(here: Variant) -> Iterator[Variant]:
    """The same kernel, its IPython in namespaces of its own."""
    with tempfile.TemporaryDirectory() as folder, pods_in(Path(folder)) as pods:
        client = Path(folder) / "bitfusion"
        client.write_text(CLIENT_SCRIPT)
        client.chmod(0o755)
        pods.relay.close()  # measured is the stream, not a relay written in Python
        given = pods.environment | {"PODS_PORT": pods.environment["PODS_AGENT_PORT"]}
        given |= {"BITFUSION_CLIENT": str(client)}
        yield replace(here, environ={**here.environ, **given})
