"""The other side of an agent that runs as a process of its own, as process 1 of a pid namespace."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import bitfusion_pods
from bitfusion_pods.spawn import Ended, Failed, Spawn, ended_from_json, failed_from_json
from bitfusion_pods.stream.channels import STDERR, STDIN, STDOUT
from bitfusion_pods.stream.frames import Frame, Kind
from bitfusion_pods.stream.handshake import Handshake
from bitfusion_pods.stream.link import Lost
from bitfusion_pods.stream.session import Session
from tests.pods.stream.sides import CLIENT, POD, SESSION, Keys, finish
from tests.support.namespaces import as_process_1
from tests.support.ports import free_port
from tests.support.waiting import Deadline, wait_until

AGENT = str(Path(bitfusion_pods.__file__).parent / "agent" / "__main__.py")


class RunningAgent:
    """An agent with the files of a pod."""

    def __init__(
        self, keys: Keys, base: Path, environment: Mapping[str, str], program: Sequence[str] = (AGENT,)
    ) -> None:
        self.port = free_port()
        self.keys = keys
        folder = base / "keys"
        folder.mkdir()
        for name in ("tls.key", "tls.crt"):
            (folder / name).write_bytes((keys.folder / POD / name).read_bytes())
        (folder / "client.crt").write_bytes((keys.folder / CLIENT / "tls.crt").read_bytes())
        self.log: list[str] = []
        words = [sys.executable, "-I", "-S", *program, "--keys", str(folder), "--port", str(self.port)]
        self.process = subprocess.Popen(
            as_process_1(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_until(lambda: self.has_said("listens"), lambda: self.log, 15)

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log += self.process.stderr

    def has_said(self, words: str) -> bool:
        return any(words in line for line in list(self.log))

    def dial(self, host: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((host, self.port))

    def wait_for_end(self, limit_s: float = 10.0) -> str:
        """The last line of its log."""
        wait_until(lambda: self.process.poll() is not None, lambda: self.log, limit_s)
        self._reader.join(5)
        return self.log[-1]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()


class AgentClient:
    """A client that runs one program. Its stdin, stdout and stderr are pipes of this process."""

    def __init__(self, agent: RunningAgent, name: bytes = SESSION, host: str = "127.0.0.1") -> None:
        self._agent = agent
        self._host = host
        self.session = Session(name, of_pod=False)
        self._context = agent.keys.context(CLIENT, POD)
        self.frames: list[Frame] = []
        self.out: dict[int, bytes] = {STDOUT: b"", STDERR: b""}
        self._ends: dict[int, int] = {}
        self.stdin = -1
        self.connect()

    def connect(self) -> None:
        """Dial, also again."""
        link = self.session.link
        dials = Handshake(self._agent.dial(self._host), self._context, lambda _: link.greet(), server=False)
        (theirs,) = finish(dials)
        assert dials.said is not None
        link.attach(dials.connection, dials.said, theirs)

    def cut(self) -> None:
        """Reset the connection: one that is closed in order is that of a client whose process has died."""
        connection = self.session.link.connection
        assert connection is not None
        connection.raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.session.link.detach()

    def spawn(
        self,
        *argv: str,
        environment: dict[str, str] | None = None,
        cwd: str = "",
        folder: str = "",
        files: dict[str, str] | None = None,
        pythons: dict[str, str] | None = None,
        sockets: tuple[str, ...] = (),
    ) -> None:
        """Ask for a program, with this process's environment unless another is given."""
        given = dict(os.environ) if environment is None else environment
        asked = Spawn(argv, given, cwd, folder, files, pythons=pythons, sockets=sockets)
        read_end, self.stdin = os.pipe()
        self.session.channels.add(STDIN, read_end, None)
        for number in (STDOUT, STDERR):
            self._ends[number], write_end = os.pipe()
            os.set_blocking(self._ends[number], False)
            self.session.channels.add(number, None, write_end)
        self.session.link.put(Kind.SPAWN, 0, asked.to_json())

    def turn(self, seconds: float = 0.02) -> bool:
        """Serve the stream once; true. Raises Lost."""
        self.session.turn(seconds, self.frames.append)
        for number, fd in self._ends.items():
            try:
                self.out[number] += os.read(fd, 1 << 20)
            except BlockingIOError:
                pass
        return True

    def until(self, kind: Kind, limit_s: float = 15.0) -> bytes:
        """The payload of the first such frame."""
        deadline = Deadline(limit_s)
        while True:
            for frame in self.frames:
                if frame.kind is kind:
                    return frame.payload
            assert not deadline.passed, f"no {kind.name}: {self.frames}, {self.out}, {self._agent.log}"
            self.turn()

    def until_said(self, words: bytes, limit_s: float = 15.0) -> None:
        deadline = Deadline(limit_s)
        while words not in self.out[STDOUT] + self.out[STDERR]:
            assert not deadline.passed, f"{words!r} is not in {self.out}, {self._agent.log}"
            self.turn()

    def ended(self) -> Ended:
        """How the program has ended; its output is whole then."""
        ended = ended_from_json(self.until(Kind.EXIT))
        while self.session.channels.wants_write:
            self.turn(0)
        self.turn(0)
        return ended

    def failed(self) -> Failed:
        return failed_from_json(self.until(Kind.FAILED))

    def say(self, kind: Kind, payload: bytes = b"") -> None:
        self.session.link.put(kind, 0, payload)
        self.session.link.flush()

    def close(self) -> None:
        self.session.close()
        for fd in (self.stdin, *self._ends.values()):
            if fd >= 0:
                try:
                    os.close(fd)
                except OSError:
                    pass
        self._ends.clear()


__all__ = ["AgentClient", "Lost", "RunningAgent"]
