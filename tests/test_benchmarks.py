"""The benchmarks run, on tiny numbers; how fast anything is stands in no test."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import pool_service, processes, trace
from benchmarks.__main__ import TOPICS, load, main
from benchmarks.admission_throughput import cpu_seconds
from benchmarks.effort import TINY
from benchmarks.measure import (
    MEGABYTE,
    MILLISECOND,
    AtMost,
    AtMostMore,
    AtMostTimes,
    Goal,
    Row,
    Samples,
    Shown,
    SpeedAtLeast,
    failed,
    format_value,
    interleave,
    percentile,
)
from benchmarks.table import format_table
from benchmarks.workplace import Workplace
from bitfusion_pool.client.connections.service_errors import gone


@pytest.fixture(scope="module")
def workplace() -> Iterator[Workplace]:
    with Workplace.open() as opened:
        yield opened
    assert not opened.folder.exists()


SLOWEST = {
    *(
        "admission_throughput",
        "first_cell",
        "gpu_pod_cells",
        "idle",
        "injector_throughput",
        "interrupt",
        "memory",
    ),
    *("lab_page", "output", "pod_stream", "pool", "pool_service", "restart"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "topic",
    [pytest.param(topic, marks=[pytest.mark.long] * (topic in SLOWEST)) for topic in TOPICS],
)
def test_each_topic_measures_something(topic: str, workplace: Workplace) -> None:
    rows = load(topic)(workplace, TINY)
    assert rows
    for row in rows:
        assert row.topic == topic
        assert row.ours is not None, row.note
        assert row.ours.value >= 0
        assert row.verdict in ("met", "not met", "")


def test_a_service_that_refuses_connections_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [gone("/s", "connection refused")] * 2

    class Dialled:
        def __init__(self, *_: object) -> None:
            if refusals:
                raise refusals.pop()

        @property
        def connection(self) -> Dialled:
            return self

        def close(self) -> None:
            pass

    monkeypatch.setattr(pool_service, "LifeByLock", Dialled)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        pool_service.wait_until_it_answers("/s", process)
    assert not refusals


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "late"])
def test_a_service_that_does_not_start_is_said_with_the_reason(ended: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as bound, subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        bound.bind(path)  # and nobody listens: the file is there, connections are refused
        if ended:
            process.communicate()
        with pytest.raises(RuntimeError, match=r"the service does not start: .*[Cc]onnection refused"):
            pool_service.wait_until_it_answers(path, process, 60.0 if ended else 0.0)


def test_the_command_prints_a_table_and_writes_the_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "samples.json"
    assert main(["--control", "--effort", "tiny", "--only", "round_trip", "--json", str(file)]) == 0
    assert "round trip of a trivial cell" in capsys.readouterr().out
    (row,) = json.loads(file.read_text())["rows"]
    assert len(row["ours"]["values"]) == TINY.cells


@pytest.mark.parametrize(
    ("goal", "plain", "ours", "comparison", "met"),
    [
        (AtMostTimes(0.25), 0.200, 0.050, "0.25 x", True),
        (AtMostTimes(0.25), 0.200, 0.060, "0.30 x", False),
        (SpeedAtLeast(0.9), 0.9, 1.0, "0.90 x", True),
        (SpeedAtLeast(0.98), 0.9, 1.0, "0.90 x", False),
        (AtMostMore(0.3 * MILLISECOND), 0.0034, 0.0036, "+ 0.20 ms", True),
        (AtMostMore(80 * MILLISECOND), 0.268, 0.367, "+ 99 ms", False),
        (AtMostMore(80 * MILLISECOND), 0.300, 0.290, "- 10 ms", True),
        (AtMost(0.3, "ms"), None, 0.332, "", False),
        (AtMost(40 * MEGABYTE, "MB"), None, 39e6, "", True),
        (Shown(), 0.1, 0.2, "2.00 x", True),
    ],
)
def test_goals(goal: Goal, plain: float | None, ours: float, comparison: str, met: bool) -> None:
    assert goal.compare(plain, ours) == comparison
    assert goal.met(plain, ours) is met


def test_a_goal_that_compares_needs_plain() -> None:
    with pytest.raises(ValueError, match="was not measured"):
        AtMostTimes(1.0).met(None, 1.0)


def test_variants_take_turns_at_being_first() -> None:
    seen: list[str] = []

    def measure(name: str) -> float:
        seen.append(name)
        return len(seen)

    samples = interleave({"a": "a", "b": "b"}, 3, measure)
    assert seen == ["a", "b", "b", "a", "a", "b"]
    assert samples["a"].values == (1, 4, 5)
    assert samples["a"].value == 4


def test_a_failed_topic_is_a_row_of_its_own() -> None:
    table = format_table(
        [
            failed("first_cell", RuntimeError("no\nanswer")),
            Row("x", "a thing", "ms", Samples((0.05,)), Samples((0.2,)), AtMostTimes(0.25)),
        ]
    )
    assert "failed" in table
    assert "(no answer)" in table
    assert "0.25 x  <= 0.25 x  met" in table


def test_the_cpu_time_of_a_process_is_exact_enough_for_one_review() -> None:
    own = os.getpid()
    for _ in range(20):
        before, began = cpu_seconds(own), time.process_time()
        while time.process_time() - began < 0.0002:
            pass
        assert cpu_seconds(own) - before >= 0.0002


def test_the_cpu_time_of_a_process_that_is_gone_is_an_error() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_seconds(process.pid)


def test_values_are_printed_in_their_unit() -> None:
    assert [format_value(0.00342, "ms"), format_value(2.75, "s"), format_value(39.6e6, "MB")] == [
        "3.42 ms",
        "2.75 s",
        "40 MB",
    ]
    assert format_value(4, "n") == "4"
    with pytest.raises(ValueError, match="one of ms, s, MB, n"):
        format_value(1, "h")
    assert percentile([1, 2, 3, 4], 0.95) == 4


def test_roles_by_command_line() -> None:
    python = "/usr/bin/python3"
    wrapper = ["/opt/pool/bitfusion", "run", "-n", "1", "--", python, "/p/bitfusion_kernel/launcher.py"]
    assert processes.role_of([python, *wrapper]) == processes.WRAPPER
    assert processes.role_of(wrapper[-2:]) == processes.LAUNCHER
    assert processes.role_of([python, "-m", "ipykernel_launcher", "-f", "x"]) == processes.KERNEL
    assert processes.role_of(["/bin/uname", "-p"]) is None


TRACE = """\
10 100.000 execve("/usr/bin/python3", ["python3", "-I", "-S", "/p/bitfusion_kernel/__main__.py"], 0x1) = 0
10 100.010 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f) = 11
10 100.011 clone3({flags=CLONE_VM|CLONE_THREAD, child_tid=0x7f} <unfinished ...>
11 100.012 execve("/nowhere/bitfusion", ["bitfusion", "run"], 0x1) = -1 ENOENT (No such file or directory)
10 100.013 <... clone3 resumed> => {parent_tid=[12]}, 88) = 12
12 100.020 bind(5, {sa_family=AF_INET, sin_port=htons(40001)}, 16) = 0
11 100.025 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f) = 13
13 100.030 execve("/p/bitfusion", ["bitfusion", "run", "-n", "1", "--", "python3", "launcher.py"], 0x1) = 0
13 100.050 exit_group(0)   = ?
13 100.051 +++ exited with 0 +++
"""


def test_a_trace_is_read_as_steps_of_the_chain() -> None:
    steps = [
        (event.what, round(event.time - 100, 3)) for event in trace.events(trace.calls(TRACE.splitlines()))
    ]
    assert steps == [
        ("proxy is executed", 0.0),
        ("proxy forks supervisor", 0.01),
        ("proxy binds its first socket", 0.02),
        ("proxy binds its last socket", 0.02),
        ("supervisor forks child of supervisor", 0.025),
        ("wrapper is executed", 0.03),
        ("wrapper ends", 0.05),
    ]
