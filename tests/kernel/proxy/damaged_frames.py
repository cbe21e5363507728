"""A kernel that sends what no kernel should: torn, reordered, doubled, random and huge frames.

As a program with a connection file it is such a kernel: a cell `SEED NUMBER` has it send that many on all
channels, a cell `SEED NUMBER OTHERS` so many whole replies and states of itself and of the cells behind it,
in any order, and any other cell prints itself.

`python -m tests.kernel.proxy.damaged_frames --frames 100000` runs one behind
a real proxy, which must live, stay as small as it is, and run the next cell.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq

from bitfusion_kernel.protocol import connection_file
from bitfusion_kernel.protocol.wire import InvalidMessage, Message, Wire
from tests.kernel.proxy_harness import GRANT, ProxyHarness
from tests.support.waiting import Deadline

Frames = list[bytes]

ODD_JSON = (b"", b"{", b"null", b"[]", b"3", b'"text"', b"\xff\xfe", b"{}", b"[" * 5000, b'{"msg_id": 7}')
HUGE = 3 << 20
AT_ONCE, OF_EACH = 4, 50
"""Cells whose replies and states come in any order, and how many of them."""
ROOM_MIB = 40
"""What the proxy may grow by: one huge message each way, and what malloc keeps of it."""


def damaged(rng: random.Random, whole: Frames) -> Frames:
    """One damaged message, made of a good one; at least one frame."""
    frames = list(whole)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(frames))
        change = rng.randrange(7)
        if change == 0:
            del frames[place:]
        elif change == 1:
            del frames[place]
        elif change == 2:
            rng.shuffle(frames)
        elif change == 3:
            frames.insert(place, frames[place])
        elif change == 4:
            frames[place] = rng.choice(ODD_JSON)
        elif change == 5:
            frames[place] = rng.randbytes(rng.randint(0, 60))
        else:
            frames[place] = frames[place][: rng.randint(0, len(frames[place]))]
        frames = frames or [rng.randbytes(3)]
    if rng.random() < 0.0005:
        frames[rng.randrange(len(frames))] = bytes(HUGE)
    return frames


class FuzzingKernel:
    """Answers probes and cells, and sends damaged messages between them."""

    def __init__(self, path: str) -> None:
        self.info = connection_file.read(path)
        self.wire = Wire(self.info.key)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        kinds = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.XPUB}
        self.sockets = {name: self._bind(kind, name) for name, kind in kinds.items()}
        self.waiting: deque[Message] = deque()

    def _bind(self, kind: int, channel: str) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.sndhwm = 0
        socket.bind(self.info.address(channel))
        return socket

    def run(self) -> None:
        """Serve until a shutdown."""
        poller = zmq.Poller()
        for name in ("shell", "control"):
            poller.register(self.sockets[name], zmq.POLLIN)
        while True:
            for socket, _ in [(self.sockets["shell"], 0)] if self.waiting else poller.poll():
                request = self.waiting.popleft() if self.waiting else self.wire.read(socket.recv_multipart())
                self._publish("status", {"execution_state": "busy"}, request)
                content = self._serve(request) if request.type == "execute_request" else {}
                self._reply(socket, request, content)
                self._publish("status", {"execution_state": "idle"}, request)
                if request.type == "shutdown_request":
                    self.context.destroy(linger=500)
                    return

    def _serve(self, cell: Message) -> dict[str, Any]:
        words = str(cell.content["code"]).split()
        if words[0].isdigit() and len(words) == 3:
            self._send_in_any_order(cell, random.Random(int(words[0])), int(words[1]), int(words[2]))
        elif words[0].isdigit():
            self._send_damaged(cell, random.Random(int(words[0])), int(words[1]))
        else:
            self._publish("stream", {"name": "stdout", "text": cell.content["code"]}, cell)
        return {"execution_count": 1}

    def _send_damaged(self, cell: Message, rng: random.Random, number: int) -> None:
        proxy, clients = cell.identities[0], cell.identities[1:]
        for count in range(number):
            kind = rng.choice(
                ("execute_reply", "list_subshell_reply", "kernel_info_reply", "status", "stream")
            )
            parent = cell.header | {"msg_id": rng.choice((cell.id + "x", "other", ""))}
            whole = self.wire.build(kind, {"execution_state": "busy"}, parent=parent)
            channel = rng.choice(("shell", "control", "stdin", "iopub"))
            address = [] if channel == "iopub" else [proxy, *(clients if rng.random() < 0.5 else [])]
            self.sockets[channel].send_multipart([*address, *damaged(rng, whole)])
            if count % 500 == 0:
                time.sleep(0.01)  # as fast as the proxy, so that it is its memory which counts

    def _send_in_any_order(self, cell: Message, rng: random.Random, number: int, others: int) -> None:
        while len(self.waiting) < others:
            self.waiting.append(self.wire.read(self.sockets["shell"].recv_multipart()))
        for _ in range(number):
            request = rng.choice((cell, *self.waiting))
            if rng.random() < 0.3:
                self._reply(self.sockets["shell"], request, {"execution_count": 1})
            else:
                self._publish("status", {"execution_state": rng.choice(("busy", "idle"))}, request)

    def _publish(self, message_type: str, content: dict[str, Any], parent: Message) -> None:
        frames = self.wire.build(message_type, content, parent=parent.header, identities=[b"topic"])
        self.sockets["iopub"].send_multipart(frames)

    def _reply(self, socket: zmq.Socket[bytes], request: Message, content: dict[str, Any]) -> None:
        reply_type = request.type.removesuffix("_request") + "_reply"
        whole = {"status": "ok", **content}
        frames = self.wire.build(reply_type, whole, parent=request.header, identities=request.identities)
        socket.send_multipart(frames)


class Client:
    """The client of a proxy whose kernel is one of these: it passes over what is damaged, as clients do."""

    def __init__(self, harness: ProxyHarness) -> None:
        self.harness = harness
        self.replies: dict[object, int] = {}
        """How many each cell has got."""

    def run(self, code: str, limit_s: float) -> str:
        """What a cell prints, once its reply has come."""
        (printed,) = self.run_together([code], limit_s)
        return printed

    def run_together(self, codes: Sequence[str], limit_s: float) -> list[str]:
        """The same of cells that are sent at once."""
        printed = dict.fromkeys(map(self.harness.cell, codes), "")
        self.replies |= dict.fromkeys(printed, 0)
        deadline = Deadline(limit_s)
        sockets = (self.harness.shell, self.harness.control, self.harness.iopub)
        idle: set[object] = set()
        while not all(self.replies[cell] and cell in idle for cell in printed):
            assert not deadline.passed, f"{codes}: {self.replies}, idle {idle}, {self._proxy_said()}"
            assert self.harness.process.poll() is None, self._proxy_said()
            for socket in sockets:
                for message in self._arrived(socket):
                    cell = message.parent_header.get("msg_id")
                    if cell in self.replies:
                        self.replies[cell] += message.type == "execute_reply"
                    if message.content.get("execution_state") == "idle":
                        idle.add(cell)
                    if message.type == "stream" and cell in printed:
                        printed[cell] += message.content["text"]
        return list(printed.values())

    def _arrived(self, socket: zmq.Socket[bytes]) -> list[Message]:
        messages = []
        while socket.poll(5):
            try:
                messages.append(self.harness.wire.read(socket.recv_multipart()))
            except InvalidMessage:
                continue
        return messages

    def _proxy_said(self) -> str:
        return self.harness.stderr.read_text()[-2000:]


def memory_mib(pid: int) -> float:
    """The resident memory of a process."""
    words = next(
        line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line[:6] == "VmRSS:"
    )
    return int(words[1]) / 1024


def spec(folder: Path) -> tuple[str, ...]:
    """The options of a proxy whose kernel this is."""
    kernel = {"argv": [sys.executable, "-m", __spec__.name, "-f", "{connection_file}"], "language": "x"}
    (folder / "wrapped_kernel.json").write_text(json.dumps(kernel))
    return (f"--bitfusion-spec={folder}",)


def fuzz(start: Callable[..., ProxyHarness], folder: Path, number: int, seed: int) -> tuple[float, float]:
    """Have a kernel send so many damaged messages, and a fifth as many whole ones in any order.

    Returns:
        The proxy's memory before and after, in MiB.

    Raises:
        AssertionError: The proxy has ended, or a cell is not answered, or twice.
    """
    harness = start(GRANT, options=spec(folder), PYTHONPATH=str(Path(__file__).parents[3]))
    client = Client(harness)
    assert client.run("first", 30) == "first"
    client.run(f"{seed} {min(number, 2000)}", 60)
    before = memory_mib(harness.process.pid)
    client.run(f"{seed + 1} {number}", 60 + number / 300)
    assert client.run("next", 30) == "next"
    for more in range(number // 5 // (AT_ONCE * OF_EACH)):
        others = [f"cell {at}" for at in range(1, AT_ONCE)]
        client.run_together([f"{seed + more} {AT_ONCE * OF_EACH} {len(others)}", *others], 30)
        assert client.run("next", 30) == "next"
    assert set(client.replies.values()) == {1}, "each cell has one reply"
    return before, memory_mib(harness.process.pid)


def main() -> int:
    """The command; 1 if the proxy has grown."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000, help="messages in all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        runtime = Path(folder) / "run"
        runtime.mkdir(mode=0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        started: list[ProxyHarness] = []

        def start(*words: Any, **more: Any) -> ProxyHarness:
            started.append(ProxyHarness(*words, **more))
            return started[-1]

        try:
            before, after = fuzz(start, Path(folder), options.frames, options.seed)
        finally:
            for harness in started:
                harness.close()
    print(f"{options.frames} damaged messages: the proxy lives, {before:.1f} MiB before, {after:.1f} after")
    return 1 if after > before + ROOM_MIB else 0


if __name__ == "__main__":
    if "-f" in sys.argv:
        FuzzingKernel(sys.argv[sys.argv.index("-f") + 1]).run()
    else:
        sys.exit(main())
