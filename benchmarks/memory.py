"""Memory of the chain: at rest, and behind a client that subscribes and never reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks import processes
from benchmarks.effort import Effort
from benchmarks.kernel_client import KernelClient, KernelSilent
from benchmarks.measure import MEGABYTE, AtMost, AtMostTimes, Row, Samples
from benchmarks.output import DISPLAYS
from benchmarks.processes import KERNEL, LAUNCHER, PROXY, SUPERVISOR, WRAPPER, Memory
from benchmarks.workplace import FIRST_CELL, PLAIN, Kernel, Variant, Workplace

TOPIC = "memory"
SAMPLE_SECONDS = 0.05
AFTER_SECONDS = 1.0
SUBSCRIBE_SECONDS = 0.2  # this client can't see its subscription arrive, as it never reads


@dataclass(frozen=True, slots=True)
class Unread:
    """Peak memory while nobody reads, in bytes."""

    proxy_and_kernel: int
    whole_chain_pss: int


class Watch(threading.Thread):
    """Samples the memory of a kernel's processes and keeps the peaks."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(daemon=True)
        roles = processes.roles(kernel.mark, kernel.pid)
        self._relaying = [pid for pid, role in roles.items() if role in (PROXY, KERNEL)]
        self._all = list(roles)
        self._ended = threading.Event()
        self.peak = Unread(0, 0)

    def run(self) -> None:
        """Sample until ``finish`` is called."""
        while True:
            each = {pid: processes.memory(pid) for pid in self._all}
            rss = sum(each[pid].rss for pid in self._relaying)
            pss = sum(one.pss for one in each.values())
            self.peak = Unread(max(rss, self.peak.proxy_and_kernel), max(pss, self.peak.whole_chain_pss))
            if self._ended.wait(SAMPLE_SECONDS):
                return

    def finish(self) -> Unread:
        """Sample a little longer, as buffers fill behind the cell's end; return the peaks."""
        self._ended.wait(AFTER_SECONDS)
        self._ended.set()
        self.join()
        return self.peak


def at_rest(variant: Variant) -> dict[str, Memory]:
    """Memory by role, after one cell. The plain kernel has the role ``proxy``: Jupyter started it."""
    with variant.kernel() as kernel, kernel.client() as client:
        _first_cell(client)
        roles = processes.roles(kernel.mark, kernel.pid)
        return {role: processes.memory(pid) for pid, role in roles.items()}


def unread(variant: Variant, displays: int) -> Unread:
    """Peak memory while a cell shows ``displays`` MB to a client that never reads its iopub."""
    with variant.kernel() as kernel:
        with kernel.client() as reader:
            _first_cell(reader)
        with kernel.client(reads=False) as client:
            client.kernel_info()
            time.sleep(SUBSCRIBE_SECONDS)
            watch = Watch(kernel)
            watch.start()
            cell = client.execute(DISPLAYS.format(length=1_000_000, count=displays), timeout=120)
            if cell.status != "ok":
                raise KernelSilent(f"the cell that nobody reads ended with {cell.status} {cell.error_name}")
            return watch.finish()


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for the proxy, for proxy and supervisor, and for the client that never reads."""
    resting = [at_rest(workplace.variant(FIRST_CELL)) for _ in range(effort.memory)]
    proxy = _samples(one[PROXY].rss for one in resting)
    rows = [
        Row(
            TOPIC,
            "proxy at rest after a cell, resident",
            "MB",
            proxy,
            goal=AtMost(40 * MEGABYTE, "MB"),
            note=_breakdown(resting[-1]),
        )
    ]
    for what, roles in (
        ("proxy and supervisor", (PROXY, SUPERVISOR)),
        ("wrapper and launcher", (WRAPPER, LAUNCHER)),
    ):
        rows.append(Row(TOPIC, f"{what}, proportional", "MB", _samples(_pss(one, roles) for one in resting)))

    variants = workplace.variants(FIRST_CELL)
    peaks: dict[str, list[Unread]] = {name: [] for name in variants}
    for _ in range(effort.memory):
        for name, variant in variants.items():
            peaks[name].append(unread(variant, effort.unread_displays))
    what = f"{effort.unread_displays} unread displays of 1 MB"
    relaying = {name: _samples(one.proxy_and_kernel for one in peaks[name]) for name in peaks}
    chain = {name: _samples(one.whole_chain_pss for one in peaks[name]) for name in peaks}
    return [
        *rows,
        Row(
            TOPIC,
            f"{what}: proxy + kernel, resident",
            "MB",
            relaying[FIRST_CELL],
            relaying[PLAIN],
            AtMostTimes(1.0),
        ),
        Row(TOPIC, f"{what}: whole chain, proportional", "MB", chain[FIRST_CELL], chain[PLAIN]),
    ]


def _first_cell(client: KernelClient) -> None:
    client.join_iopub()
    cell = client.execute("pass")
    if cell.status != "ok":
        raise KernelSilent(f"the first cell ended with {cell.status} {cell.error_name}")


def _samples(values: Iterable[int]) -> Samples:
    return Samples(tuple(float(value) for value in values))


def _pss(memory: Mapping[str, Memory], roles: Iterable[str]) -> int:
    return sum(memory[role].pss for role in roles if role in memory)


def _breakdown(memory: Mapping[str, Memory]) -> str:
    """Resident and proportional memory of every process of the chain, for the row's note."""
    each = [
        f"{role} {one.rss / MEGABYTE:.0f} ({one.pss / MEGABYTE:.0f})"
        for role in (PROXY, SUPERVISOR, WRAPPER, LAUNCHER, KERNEL)
        if (one := memory.get(role))
    ]
    return "resident (proportional) MB: " + ", ".join(each)
