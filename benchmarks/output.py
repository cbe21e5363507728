"""Much output: how fast it comes through, and that all of it arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.effort import Effort
from benchmarks.kernel_client import Cell, KernelClient, KernelSilent
from benchmarks.measure import Goal, Row, SpeedAtLeast, interleave
from benchmarks.workplace import FIRST_CELL, PLAIN, Workplace

TOPIC = "output"
LINE = 100

STDOUT = """
import sys
line = "x" * {length} + "\\n"
for _ in range({count}):
    sys.stdout.write(line)
sys.stdout.flush()
"""
DISPLAYS = """
publish, data = get_ipython().display_pub.publish, {{"text/plain": "x" * {length}}}
for _ in range({count}):
    publish(data)
"""


@dataclass(frozen=True, slots=True)
class Volume:
    """A cell that prints much: what it is called, its code, and how many pieces of it must arrive."""

    what: str
    code: str
    count: int
    arrived: Callable[[Cell], int]
    goal: Goal


def volumes(effort: Effort) -> list[Volume]:
    """The cells, smaller when ``effort`` is."""
    lines = effort.megabytes * 1_000_000 // LINE
    large, small = effort.large_displays, effort.small_displays
    return [
        Volume(
            f"{effort.megabytes} MB of stdout",
            STDOUT.format(length=LINE - 1, count=lines),
            lines,
            lambda cell: cell.lines,
            SpeedAtLeast(0.98),
        ),
        Volume(
            f"{large} displays of 1 MB",
            DISPLAYS.format(length=1_000_000, count=large),
            large,
            lambda cell: cell.messages["display_data"],
            SpeedAtLeast(0.9),
        ),
        Volume(
            f"{small:,} small displays",
            DISPLAYS.format(length=20, count=small),
            small,
            lambda cell: cell.messages["display_data"],
            SpeedAtLeast(0.9),
        ),
    ]


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """One row a volume. The goal is not met where ours lost output, whatever its speed."""
    with ExitStack() as stack:
        clients: dict[str, KernelClient] = {}
        for name, variant in workplace.variants(FIRST_CELL).items():
            kernel = stack.enter_context(variant.kernel())
            clients[name] = stack.enter_context(kernel.client())
            clients[name].join_iopub()
            clients[name].execute("pass")
        return [row(TOPIC, volume, clients, FIRST_CELL, PLAIN, effort) for volume in volumes(effort)]


def row(
    topic: str, volume: Volume, clients: Mapping[str, KernelClient], ours: str, plain: str, effort: Effort
) -> Row:
    """The same cell in turns on both kernels: `ours` beside `plain`."""
    lost = dict.fromkeys(clients, 0)

    def measure(name: str) -> float:
        cell = clients[name].execute(volume.code, timeout=120)
        if cell.status != "ok":
            raise KernelSilent(f"{volume.what}, {name}: {cell.status} {cell.error_name}")
        lost[name] += volume.count - volume.arrived(cell)
        return cell.seconds

    samples = interleave({name: name for name in clients}, effort.volumes, measure)
    whole = effort.volumes * volume.count
    note = "; ".join(f"{name} LOST {n} of {whole} pieces" for name, n in lost.items() if n)
    return Row(
        topic, volume.what, "s", samples[ours], samples[plain], volume.goal, note, whole=not lost[ours]
    )
