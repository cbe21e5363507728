"""A program behind the stream of a GPU pod beside one here: output, sockets, memory, idle CPU."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import bitfusion_pods
from benchmarks.effort import Effort
from benchmarks.measure import (
    MEGABYTE,
    MILLISECOND,
    AtMost,
    Goal,
    Row,
    Samples,
    Shown,
    SpeedAtLeast,
    interleave,
)
from benchmarks.workplace import Workplace
from tests.pods.stream.sides import CLIENT, POD, Keys
from tests.support.ports import free_port, return_port

TOPIC = "pod_stream"
ROOT = Path(__file__).parents[1]
AGENT = str(Path(bitfusion_pods.__file__).parent / "agent" / "__main__.py")
CLIENT_SCRIPT, RELAY = (
    str(ROOT / "benchmarks" / "pod_stream_client.py"),
    ROOT / "benchmarks" / "delaying_relay.py",
)
PLAIN, OURS, FAR = "plain", "ours", "20 ms away"
LEFT = 16_000_000  # more than may be under way
DELAY_S = 0.010  # each way
DISPLAYS, DISPLAY = 30, 1_000_000
ECHOES = 50
MEMORY = AtMost(25 * MEGABYTE, "MB")
IDLE_S, IDLE_GOAL = 20.0, AtMost(40 * MILLISECOND, "ms")

LINES = (
    "import sys\nline = 'x' * 99 + '\\n'\nwrite = sys.stdout.write\n"
    "for _ in range({count}): write(line)\nsys.stdout.flush()"
)
FLUSHED = "import os\nline = b'x' * 99 + b'\\n'\nfor _ in range({count}): os.write(1, line)"
BYTES = "import os\npiece = bytes(65536)\nfor _ in range({count}): os.write(1, piece)"
SERVES = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.path.join(sys.argv[1], "socket"))
listener.listen()
while True:
    peer, _ = listener.accept()
    while word := peer.recv(1):
        if word == b"d":
            for _ in range({displays}):
                peer.sendall(bytes({display}))
        else:
            peer.sendall(word)
"""


ENDS_WITHIN_S = 5.0


@dataclass
class Way:
    """How a program is run: here, or behind a stream, which may be long."""

    name: str
    keys: Path
    folder: Path

    @contextlib.contextmanager
    def running(
        self, code: str, *, with_folder: bool = False
    ) -> Iterator[tuple[subprocess.Popen[bytes], list[int], Path]]:
        """A Python program, with its output; the pids of client and agent; its folder."""
        here = Path(tempfile.mkdtemp(dir=self.folder))
        there = Path(f"{here}-there") if with_folder and self.name != PLAIN else here
        program = [sys.executable, "-I", "-S", "-c", code, str(there)]
        with contextlib.ExitStack() as stack:
            if self.name == PLAIN:
                yield stack.enter_context(ended(subprocess.Popen(program, stdout=subprocess.PIPE))), [], here
                return
            port = free_port()
            stack.callback(return_port, port)
            words = [
                sys.executable,
                "-I",
                "-S",
                AGENT,
                "--keys",
                str(self.keys / "agent"),
                "--port",
                str(port),
            ]
            agent = stack.enter_context(
                ended(subprocess.Popen(words, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL))
            )
            dialled = port
            if self.name == FAR:
                relay = [sys.executable, str(RELAY), str(port), str(DELAY_S)]
                far = stack.enter_context(ended(subprocess.Popen(relay, stdout=subprocess.PIPE)))
                assert far.stdout is not None
                dialled = int(far.stdout.readline())
            words = [CLIENT_SCRIPT, str(self.keys), str(dialled), str(here) if with_folder else "", *program]
            client = subprocess.Popen([sys.executable, "-I", "-S", *words], stdout=subprocess.PIPE)
            yield stack.enter_context(ended(client)), [client.pid, agent.pid], here


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """It ends with the block; told first, as a client passes that on to its program."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run(workplace: Workplace, effort: Effort) -> list[Row]:
    """The rows. Medians of twice as many as other volumes, since one takes no second."""
    with tempfile.TemporaryDirectory(prefix="bf-") as name:
        folder = Path(name)
        keys = folder / "keys"
        keys.mkdir()
        Keys(keys)
        (keys / "agent").mkdir()
        for file in ("tls.key", "tls.crt"):
            (keys / "agent" / file).write_bytes((keys / POD / file).read_bytes())
        (keys / "agent" / "client.crt").write_bytes((keys / CLIENT / "tls.crt").read_bytes())
        ways = {name: Way(name, keys, folder) for name in (PLAIN, OURS, FAR)}
        size, times = effort.megabytes * 1_000_000, 2 * effort.volumes
        rows = _compared(
            f"{effort.megabytes} MB of stdout, in lines",
            interleave(ways, times, partial(seconds_to_read, LINES.format(count=size // 100), size)),
            Shown(),  # a bare pipe copies memory; what a cell prints is judged in `gpu_pod_cells`
        )
        rows += _compared(
            f"{effort.megabytes // 10 or 1} MB of stdout, each line flushed",
            interleave(ways, times, partial(seconds_to_read, FLUSHED.format(count=size // 1000), size // 10)),
            SpeedAtLeast(0.7),
        )
        count = size // 65536
        rows += _compared(
            f"{effort.megabytes} MB of stdout, in 64 KiB",
            interleave(ways, times, partial(seconds_to_read, BYTES.format(count=count), count * 65536)),
            Shown(),
        )
        rows += _socket_rows(ways, times)
        return rows + _memory_rows(ways[OURS], effort) + _idle_rows(ways[OURS], min(IDLE_S, size / 5e6))


def seconds_to_read(code: str, size: int, way: Way) -> float:
    """From the first byte of its output to the last."""
    with way.running(code) as (process, _, _):
        assert process.stdout is not None
        fd, came = process.stdout.fileno(), len(os.read(process.stdout.fileno(), 1))
        began = time.perf_counter()
        while data := os.read(fd, 1 << 16):
            came += len(data)
        seconds = time.perf_counter() - began
        if came != size:
            raise RuntimeError(f"{way.name}: {came} of {size} bytes")
        return seconds


def _socket_rows(ways: dict[str, Way], times: int) -> list[Row]:
    with contextlib.ExitStack() as stack:
        code = SERVES.format(displays=DISPLAYS, display=DISPLAY)
        peers = {}
        for name, way in ways.items():
            _, _, folder = stack.enter_context(way.running(code, with_folder=True))
            peers[name] = stack.enter_context(connected(folder / "socket"))
        displays = interleave(peers, times, seconds_of_displays)
        echoes = interleave(peers, times, seconds_of_echo)
    return [
        *_compared(f"{DISPLAYS} displays of 1 MB by a forwarded socket", displays, Shown()),
        *_compared("one byte there and back by a forwarded socket", echoes, Shown(), "ms"),
    ]


def connected(path: Path) -> socket.socket:
    deadline = time.monotonic() + 20
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} does not appear")
        time.sleep(0.01)
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(60)
    while True:
        try:
            made.connect(str(path))
            return made
        except ConnectionRefusedError:  # bound, and does not listen yet
            time.sleep(0.01)


def seconds_of_displays(peer: socket.socket) -> float:
    began = time.perf_counter()
    peer.sendall(b"d")
    left = DISPLAYS * DISPLAY
    while left:
        left -= len(peer.recv(min(left, 1 << 18)))
    return time.perf_counter() - began


def seconds_of_echo(peer: socket.socket) -> float:
    began = time.perf_counter()
    for _ in range(ECHOES):
        peer.sendall(b"e")
        peer.recv(1)
    return (time.perf_counter() - began) / ECHOES


def _memory_rows(way: Way, effort: Effort) -> list[Row]:
    """While a reader stands still, after a tenth and after all of ten times the output."""
    size = effort.megabytes * 10_000_000
    with way.running(BYTES.format(count=(size + LEFT) // 65536)) as (process, pids, _):
        assert process.stdout is not None
        figures, came = [], 0
        for part in (0.1, 1.0):
            while came < part * size:
                came += len(os.read(process.stdout.fileno(), 1 << 16))
            time.sleep(1.0)  # it stands still
            figures.append([resident(pid) for pid in pids])
        peaks = [resident(pid, "VmHWM") for pid in pids]
    return [
        Row(
            TOPIC,
            f"memory of the {name}, its reader stands still after {size // 1_000_000} MB",
            "MB",
            Samples((figures[1][number],)),
            goal=MEMORY,
            note=f"after a tenth {figures[0][number] / MEGABYTE:.1f}, ever {peaks[number] / MEGABYTE:.1f} MB",
        )
        for number, name in enumerate(("client", "agent"))
    ]


def _idle_rows(way: Way, seconds: float) -> list[Row]:
    with way.running("import time\nprint('runs', flush=True)\ntime.sleep(600)", with_folder=True) as made:
        process, pids, _ = made
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.5)
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)
        spent = [cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
    return [
        Row(TOPIC, f"CPU time of the idle {name} in {seconds:.0f} s", "ms", Samples((each,)), goal=IDLE_GOAL)
        for name, each in zip(("client", "agent"), spent, strict=True)
    ]


def _compared(what: str, samples: dict[str, Samples], goal: Goal, unit: str = "s") -> list[Row]:
    return [
        Row(TOPIC, what, unit, samples[OURS], samples[PLAIN], goal),
        Row(TOPIC, f"{what}, 20 ms away", unit, samples[FAR], samples[PLAIN]),
    ]


def resident(pid: int, name: str = "VmRSS") -> float:
    """In bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024.0 * int(status.partition(f"{name}:")[2].split()[0])


def cpu_seconds(pid: int) -> float:
    """In nanoseconds' resolution, where Linux tells it so."""
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9
