"""``python -m benchmarks.profile_start``: where the time between start and first result goes.

Three views: a timeline of the chain's steps (by strace, where it is installed; medians over several starts),
what each process of the chain costs on its own, and which imports cost most in each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import trace
from benchmarks.first_cell import CELL, IDLE_SECONDS
from benchmarks.measure import MILLISECOND
from benchmarks.workplace import FIRST_CELL, PLAIN, SPEC_OF, START, Kernel, Variant, Workplace

STARTS = 7
REPEATS = 11
IMPORTS_SHOWN = 15
WAYS = ("info", "cell", "idle")

_IMPORT = re.compile(r"^import time:\s+(\d+) \|\s+(\d+) \|(\s+)(\S+)$")


@dataclass(frozen=True, slots=True)
class Import:
    """One module: seconds on its own and with what it imported, and who imported it first."""

    own: float
    cumulative: float
    module: str
    importer: str


def timeline(workplace: Workplace, name: str, way: str, starts: int) -> list[tuple[float, str, int]]:
    """Steps with their median time in seconds and how many starts had them, in order of time.

    Times count from ``start_kernel`` or, with way ``idle``, from sending the cell.
    """
    variant = workplace.variant(name)
    traced = Variant(name, f"{variant.spec}-traced", workplace, variant.environ)
    record = workplace.folder / "trace"
    _install_traced(workplace, variant.spec, [*trace.COMMAND, str(record)])
    seen: dict[str, list[float]] = {}
    for _ in range(starts):
        with traced.kernel() as kernel:
            origin, steps = _walk(kernel, way)
        found = trace.events(trace.calls(record.read_text().splitlines()))
        over = max(step.time for step in steps)
        for event in [*found, *steps]:
            if origin - 0.001 <= event.time <= over:
                seen.setdefault(event.what, []).append(event.time - origin)
    return sorted((statistics.median(times), what, len(times)) for what, times in seen.items())


def _walk(kernel: Kernel, way: str) -> tuple[float, list[trace.Event]]:
    """Do what is to be profiled; the time it began, and what the client saw, since the epoch."""
    epoch = time.time() - time.perf_counter()
    origin = kernel.started + epoch
    steps = []
    with kernel.client() as client:
        if way == "idle":
            client.join_iopub()
            time.sleep(max(0.0, kernel.started + IDLE_SECONDS - time.perf_counter()))
            origin = time.time()
        else:
            steps.append(trace.Event(time.time(), "client: start_kernel() has returned"))
        if way != "info":
            cell = client.finish(client.send_cell(CELL), time.perf_counter(), result=True)
            steps.append(trace.Event(cell.result_at + epoch, "client: result of the cell"))
            steps.append(trace.Event(cell.reply_at + epoch, "client: reply to the cell"))
        else:
            client.kernel_info()
            steps.append(trace.Event(time.time(), "client: kernel_info_reply"))
    return origin, steps


def _install_traced(workplace: Workplace, spec: str, prefix: Sequence[str]) -> None:
    source = Path(workplace.specs.get_kernel_spec(spec).resource_dir)
    target = source.with_name(f"{spec}-traced")
    target.mkdir(exist_ok=True)
    content = json.loads((source / "kernel.json").read_text())
    content["argv"] = [*prefix, *content["argv"]]
    (target / "kernel.json").write_text(json.dumps(content))


def process_costs(workplace: Workplace) -> list[tuple[str, float]]:
    """Median seconds that single programs take from start to end, in the environment of the kernels."""
    python = sys.executable
    programs: list[tuple[str, list[str]]] = [
        ("python -I -S -c pass", [python, "-I", "-S", "-c", "pass"]),
        ("python -I -c pass", [python, "-I", "-c", "pass"]),
        ("python -c 'import zmq'", [python, "-c", "import zmq"]),
        ("python -c 'import ipykernel.kernelapp'", [python, "-c", "import ipykernel.kernelapp"]),
        ("bitfusion run -n 1 -- /bin/true", [_wrapper(workplace), "run", "-n", "1", "--", "/bin/true"]),
    ]
    return [(what, _median(partial(_run, argv, workplace))) for what, argv in programs]


def imports(workplace: Workplace) -> list[tuple[str, list[Import]]]:
    """For each Python process of the chain its imports, dearest first."""
    python = sys.executable
    found = []
    for what, spec in (("proxy", SPEC_OF[FIRST_CELL]), ("kernel (plain ipykernel)", SPEC_OF[PLAIN])):
        argv = workplace.specs.get_kernel_spec(spec).argv
        found.append((what, _imports_of_kernel(workplace, argv)))
    run = [python, "-I", "-S", "-X", "importtime", _wrapper(workplace), "run", "-n", "1", "--", "/bin/true"]
    found.append(("wrapper", parse_imports(_stderr(run, workplace))))
    from bitfusion_kernel.processes.launcher import LAUNCHER

    nobody = str(workplace.folder / "nobody")
    launcher = [python, "-I", "-S", "-X", "importtime", LAUNCHER, nobody, "--", "/bin/true"]
    found.append(("launcher", parse_imports(_stderr(launcher, workplace))))
    return found


def _imports_of_kernel(workplace: Workplace, argv: Sequence[str]) -> list[Import]:
    """Start a kernel's process by hand with a connection file, stop it a second later."""
    from jupyter_client.connect import write_connection_file

    file, _ = write_connection_file(str(workplace.folder / "run" / "imports.json"), key=b"benchmark")
    argv = [word.replace("{connection_file}", file) for word in argv]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [argv[0], "-X", "importtime", *argv[1:]],
            env=dict(workplace.environ),
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        time.sleep(2)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        errors.seek(0)
        return parse_imports(errors.read())


def parse_imports(text: str) -> list[Import]:
    """What ``-X importtime`` wrote, dearest first.

    A module stands below those that it imported, which are indented by two more.
    """
    found = []
    above: dict[int, str] = {}
    for line in reversed(text.splitlines()):
        if match := _IMPORT.match(line):
            depth = len(match[3])
            above[depth] = match[4]
            importer = above.get(depth - 2, "")
            found.append(Import(int(match[1]) / 1e6, int(match[2]) / 1e6, match[4], importer))
    return sorted(found, key=lambda one: one.own, reverse=True)


def _wrapper(workplace: Workplace) -> str:
    """The client that the kernels find."""
    from bitfusion_client.command.find_client import find_client

    return find_client(None, workplace.environ).path


def _stderr(argv: Sequence[str], workplace: Workplace) -> str:
    return subprocess.run(
        argv, env=dict(workplace.environ), capture_output=True, text=True, timeout=60, check=False
    ).stderr


def _run(argv: Sequence[str], workplace: Workplace) -> float:
    began = time.perf_counter()
    subprocess.run(
        argv, env=dict(workplace.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - began


def _median(measure: Callable[[], float]) -> float:
    measure()  # the first run fills the page cache
    return statistics.median(measure() for _ in range(REPEATS))


def _print_timeline(workplace: Workplace, name: str, way: str, starts: int) -> None:
    print(f"\n{name}, {way}: median ms (+ since the line above), steps seen in fewer starts are marked")
    before = 0.0
    for at, what, count in timeline(workplace, name, way, starts):
        rare = "" if count == starts else f"  [{count} of {starts}]"
        print(f"{at / MILLISECOND:9.1f}  {(at - before) / MILLISECOND:+8.1f}  {what}{rare}")
        before = at


def _print_imports(found: Mapping[str, list[Import]]) -> None:
    for what, times in found.items():
        whole = sum(one.own for one in times)
        print(
            f"\nimports of the {what}: {len(times)} modules, {whole / MILLISECOND:.1f} ms (own, with imports)"
        )
        for one in times[:IMPORTS_SHOWN]:
            own, cumulative = one.own / MILLISECOND, one.cumulative / MILLISECOND
            print(f"{own:9.2f}  {cumulative:8.2f}  {one.module}  < {one.importer}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_start", description=__doc__)
    parser.add_argument("--starts", type=int, default=STARTS, help="starts for each timeline")
    parser.add_argument(
        "--variant", action="append", choices=(PLAIN, FIRST_CELL, START), help="repeatable; default: all"
    )
    parser.add_argument("--way", action="append", choices=WAYS, help="repeatable; default: all")
    parser.add_argument("--no-imports", action="store_true", help="only the timelines")
    options = parser.parse_args(arguments)
    print(f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.2f}")
    with Workplace.open() as workplace:
        if shutil.which("strace"):
            for name in options.variant or (PLAIN, FIRST_CELL, START):
                for way in options.way or WAYS:
                    _print_timeline(workplace, name, way, options.starts)
        else:
            print("no timelines: strace is not installed")
        if not options.no_imports:
            print("\nprocesses on their own, start to end, median ms")
            for what, seconds in process_costs(workplace):
                print(f"{seconds / MILLISECOND:9.1f}  {what}")
            _print_imports(dict(imports(workplace)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
