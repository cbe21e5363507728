"""The device plugin beside a bare grpc.aio server: 5,000 units sent, memory, and what it costs while idle."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from benchmarks import processes
from benchmarks.admission_throughput import cpu_seconds
from benchmarks.effort import Effort
from benchmarks.measure import MEGABYTE, MILLISECOND, AtMost, Row, Samples, interleave
from benchmarks.workplace import Workplace
from bitfusion_device_plugin.plugin.messages import Empty, ListAndWatchResponse
from bitfusion_device_plugin.plugin.registration import SOCKET_NAMES

TOPIC = "device_plugin"
GPUS = 50
UNITS = 5_000
START_S = 60.0
_MAIN = "import sys; from bitfusion_device_plugin.plugin.settings import main; sys.exit(main())"
_LIST = "- server 0 [10.0.0.1:56001]: running 0 tasks\n" + "".join(
    f"   |- GPU {number}: free memory 16160 MiB / 16160 MiB\n" for number in range(GPUS)
)


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """Rows for the time to send the units, for memory with a stream open, and for idle CPU."""
    with tempfile.TemporaryDirectory(prefix="bfp-", dir="/tmp") as place:  # short: a socket's path
        folder = Path(place)
        with _ours(folder) as ours, _bare(folder) as bare:
            sockets = {"ours": folder / SOCKET_NAMES[0], "plain": folder / "bare.sock"}
            for path in sockets.values():
                _wait_for_all(path)
            sent = interleave(sockets, effort.leases, _first_answer)
            # A stream stays open, as on a node: without one the plugin makes its socket anew.
            with _stream(sockets["ours"]) as first, _stream(sockets["plain"]) as second:
                next(first), next(second)
                memory = {name: _memory(pid) for name, pid in (("ours", ours), ("plain", bare))}
                idle = {name: Samples((value,)) for name, value in _idle(ours, bare, effort).items()}
    what = f"{UNITS:,} units, from the kubelet's call to the last of them"
    return [
        Row(TOPIC, what, "ms", sent["ours"], sent["plain"], AtMost(50 * MILLISECOND, "ms")),
        Row(TOPIC, "resident with them", "MB", memory["ours"], memory["plain"], AtMost(45 * MEGABYTE, "MB")),
        Row(
            TOPIC,
            "CPU of a second while idle",
            "ms",
            idle["ours"],
            idle["plain"],
            AtMost(MILLISECOND, "ms"),
            note=f"over {_idle_s(effort):g} s, looks at the pool included, its client's own work not",
        ),
    ]


@contextmanager
def _ours(folder: Path) -> Iterator[int]:
    """The plugin over a pool of fifty GPUs; its process id."""
    client = folder / "bitfusion"
    client.write_text(f"#!/bin/sh\ncat <<'END'\n{_LIST}END\n")
    client.chmod(0o755)
    options = [
        f"--client={client}",
        f"--plugins-registry={folder}",
        "--bind=127.0.0.1",
        "--monitoring-port=0",
    ]
    with _process("-c", _MAIN, *options) as pid:
        yield pid


@contextmanager
def _bare(folder: Path) -> Iterator[int]:
    with _process("-m", "benchmarks.bare_device_plugin", str(folder / "bare.sock"), str(UNITS)) as pid:
        yield pid


@contextmanager
def _process(*arguments: str) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(START_S)


@contextmanager
def _stream(path: Path) -> Iterator[Iterator[int]]:
    """How many units each message of a ListAndWatch call has; a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
        watch = channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch", Empty.SerializeToString, ListAndWatchResponse.FromString
        )
        grpc.channel_ready_future(channel).result(START_S)
        call = watch(Empty())
        try:
            yield (len(message.devices) for message in call)
        finally:
            call.cancel()


def _wait_for_all(path: Path) -> None:
    """Raises TimeoutError where the server does not have its units in time."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if path.exists():
            with _stream(path) as counts:
                if any(count == UNITS for count in counts):
                    return
        time.sleep(0.05)
    raise TimeoutError(f"{path.name} has not offered {UNITS} units within {START_S:g} s")


def _first_answer(path: Path) -> float:
    """Seconds from the call until the message with all units has been read."""
    with _stream(path) as counts:
        began = time.perf_counter()
        count = next(counts)
        took = time.perf_counter() - began
    if count != UNITS:
        raise ValueError(f"{count} units instead of {UNITS}")
    return took


def _memory(pid: int) -> Samples:
    return Samples((float(processes.memory(pid).rss),))


def _idle_s(effort: Effort) -> float:
    return 20 * effort.load_seconds


def _idle(ours: int, bare: int, effort: Effort) -> dict[str, float]:
    """Seconds of CPU in a second, of both at the same time."""
    pids = {"ours": ours, "plain": bare}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    began = time.monotonic()
    time.sleep(_idle_s(effort))
    passed = time.monotonic() - began
    return {name: (cpu_seconds(pid) - before[name]) / passed for name, pid in pids.items()}
