"""Admission in one process, side by side with bare tornado: reviews a second, and memory.

``plain`` is tornado with the same TLS and the same body, whose answer is fixed. The time of a review is what
the throughput comes to: a second divided by the reviews answered in it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks import processes
from benchmarks.admission_load import Target, Throughput, has_wrk, load, post, reviews
from benchmarks.effort import Effort
from benchmarks.measure import MILLISECOND, AtMostTimes, Row, Samples, SpeedAtLeast, interleave
from benchmarks.workplace import Workplace

TOPIC = "admission_throughput"
BARE, OURS = "bare", "ours"
CONNECTIONS = (1, 10, 50)
GOAL = SpeedAtLeast(0.75)  # 3,000 reviews/s where bare tornado does 4,000
WARM_UP = 300  # reviews; before that Python has not yet seen all of its own code


@contextmanager
def server(kind: str, workplace: Workplace) -> Iterator[tuple[int, int]]:
    """A server of its own process; gives its pid and its port."""
    with (
        open(workplace.folder / f"admission-{kind}.log", "ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.admission_server", kind],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
            if words[1:] != ["ready"]:
                raise RuntimeError(f"the server {kind} did not start: {process.poll()}")
            yield process.pid, int(words[0])
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for each kind of review and number of connections, for the latency, and for memory."""
    with server(BARE, workplace) as bare, server(OURS, workplace) as ours:
        servers = {BARE: bare, OURS: ours}
        rows = []
        for what, (path, review) in reviews().items():
            rows += rows_of(TOPIC, what, path, review, servers, workplace, effort)
        rows.append(_memory(*ours, effort))
    return rows


def rows_of(
    topic: str,
    what: str,
    path: str,
    review: bytes,
    servers: Mapping[str, tuple[int, int]],
    workplace: Workplace,
    effort: Effort,
) -> list[Row]:
    """One review to both servers (pid, port): a row for each number of connections, one for the CPU."""
    targets = {kind: Target(port, path, review) for kind, (_, port) in servers.items()}
    for target in targets.values():
        post(target, min(WARM_UP, effort.reviews))
    busy = Busy({kind: pid for kind, (pid, _) in servers.items()})
    rows = [
        _throughput(topic, what, targets, connections, busy, workplace, effort) for connections in CONNECTIONS
    ]
    samples = {kind: Samples(tuple(busy.seconds[kind])) for kind in targets}
    rows.append(
        Row(
            topic,
            f"{what}, CPU time of one",
            "ms",
            samples[OURS],
            samples[BARE],
            GOAL,
            note=f"one core to itself: {1 / samples[OURS].value:,.0f} reviews/s, "
            f"bare tornado {1 / samples[BARE].value:,.0f}",
        )
    )
    return rows


class Busy:
    """CPU seconds of the servers for one review, load by load: other work on the machine does not count."""

    def __init__(self, pids: dict[str, int]) -> None:
        self.seconds: dict[str, list[float]] = {kind: [] for kind in pids}
        self._pids = pids
        self._before = {kind: cpu_seconds(pid) for kind, pid in pids.items()}

    def add(self, kind: str, answered: int) -> None:
        """The server has answered so many reviews since it was last asked about."""
        now = cpu_seconds(self._pids[kind])
        self.seconds[kind].append((now - self._before[kind]) / answered)
        self._before[kind] = now


def cpu_seconds(pid: int) -> float:
    """What a process has used of the CPUs, all its threads, in user and in system mode.

    By its own clock, of clock_getcpuclockid(3), which counts nanoseconds: /proc counts in steps of 10 ms, in
    which a fast server may have answered all that it was asked. Raises OSError: there is no such process.
    """
    return time.clock_gettime((~pid << 3) | 2)


def _throughput(
    topic: str,
    what: str,
    targets: dict[str, Target],
    connections: int,
    busy: Busy,
    workplace: Workplace,
    effort: Effort,
) -> Row:
    seen: dict[str, list[Throughput]] = {BARE: [], OURS: []}

    def measure(kind: str) -> float:
        one = load(targets[kind], connections, effort.load_seconds, workplace.folder)
        seen[kind].append(one)
        busy.add(kind, one.answered)
        return 1 / one.rate

    samples = interleave({kind: kind for kind in targets}, effort.loads, measure)
    ours, bare = (1 / samples[kind].value for kind in (OURS, BARE))
    p50, p99 = (min(getattr(one, name) for one in seen[OURS]) / MILLISECOND for name in ("median", "p99"))
    by = "wrk" if has_wrk() and effort.load_seconds >= 1 else "threads"
    latency = f"ours p50 {p50:.2f}, p99 {p99:.2f} ms"
    return Row(
        topic,
        f"{what}, {connections} connection{'s' if connections > 1 else ''}",
        "ms",
        samples[OURS],
        samples[BARE],
        GOAL,
        note=f"{ours:,.0f} reviews/s, bare tornado {bare:,.0f}, measured by {by}; {latency}",
    )


def _memory(pid: int, port: int, effort: Effort) -> Row:
    path, review = next(iter(reviews().values()))
    target = Target(port, path, review)
    tenth = max(1, effort.reviews // 10)
    post(target, tenth)
    first = processes.memory(pid).rss
    post(target, effort.reviews - tenth)
    last = processes.memory(pid).rss
    return Row(
        TOPIC,
        f"resident after {effort.reviews:,} more reviews; plain: after {tenth:,}",
        "MB",
        Samples((float(last),)),
        Samples((float(first),)),
        AtMostTimes(1.02),
    )
