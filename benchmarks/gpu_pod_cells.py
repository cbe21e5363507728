"""Cells of a kernel in a GPU pod beside the same kernel here: what the stream costs, near and far.

The pod is a namespace of this machine: pods of a cluster have a network between them besides. What a pod's
start costs is in `gpu_pods`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import output
from benchmarks.effort import Effort
from benchmarks.interrupt import ALONE, until_interrupted
from benchmarks.kernel_client import KernelClient
from benchmarks.measure import MILLISECOND, AtMost, AtMostMore, Row, Shown, SpeedAtLeast, interleave
from benchmarks.pod_stream import DELAY_S, FAR, RELAY
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
        pods = {name: stack.enter_context(_in_pod(here, far=name == FAR)) for name in (POD, FAR)}
        for name, variant in {HERE: here, **pods}.items():
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
        rows += [
            Row(TOPIC, f"trivial cell, {FAR}", "ms", cells[FAR], cells[HERE], Shown()),
            Row(TOPIC, f"{what}, {FAR}", "ms", interrupts[FAR], interrupts[HERE], Shown()),
        ]
        some = replace(
            effort, volumes=2 * effort.volumes, large_displays=min(DISPLAYS, effort.large_displays)
        )
        for volume, goal in zip(output.volumes(some), GOALS, strict=False):
            judged = replace(volume, goal=SpeedAtLeast(goal))
            near = {HERE: clients[HERE], POD: clients[POD]}
            rows.append(output.row(TOPIC, judged, near, POD, HERE, some))
        stdout = output.volumes(some)[0]
        shown = replace(stdout, what=f"{stdout.what}, {FAR}", goal=Shown())
        away = {HERE: clients[HERE], FAR: clients[FAR]}
        return [*rows, output.row(TOPIC, shown, away, FAR, HERE, some)]


@contextmanager
def _in_pod(here: Variant, *, far: bool) -> Iterator[Variant]:
    """The same kernel, its IPython in namespaces of its own, behind a long way if `far`."""
    with tempfile.TemporaryDirectory() as folder, pods_in(Path(folder)) as pods:
        client = Path(folder) / "bitfusion"
        client.write_text(CLIENT_SCRIPT)
        client.chmod(0o755)
        pods.relay.close()  # measured is the stream, not a relay written in Python
        port = pods.environment["PODS_AGENT_PORT"]
        with _long_way(port) if far else nullcontext(port) as dialled:
            given = pods.environment | {"PODS_PORT": dialled, "BITFUSION_CLIENT": str(client)}
            yield replace(here, environ={**here.environ, **given})


@contextmanager
def _long_way(port: str) -> Iterator[str]:
    """The port of a relay that holds everything back for as long as a long network does."""
    command = [sys.executable, str(RELAY), port, str(DELAY_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        assert relay.stdout is not None
        try:
            yield relay.stdout.readline().strip()
        finally:
            relay.terminate()
