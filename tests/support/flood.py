"""Connections without an end to ports of ours, as whoever reaches them may open them.

A program of its own, so that it takes nobody's interpreter, and with the standard library alone, so that a
pod can run its text: ``python flood.py --count 10000 --say hello 127.0.0.1:8443``. At its end it prints what
it did as JSON, and holds its connections until its stdin ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

SILENT, HELLO, HEADER, TLS_HEADER = "silent", "hello", "header", "tls-header"
SAID = {
    SILENT: b"",
    HELLO: bytes.fromhex("1603010200010001fc0303") + bytes(20),  # the beginning of one
    HEADER: b"GET /healthz HTTP/1.1\r\nHost",
    TLS_HEADER: b"GET /healthz HTTP/1.1\r\nHost",
}
_AT_ONCE = 200
_NO_PORT = 24  # IP_BIND_ADDRESS_NO_PORT, linux/in.h


class _Flood:
    """One run of the program."""

    def __init__(self, words: argparse.Namespace) -> None:
        self.words = words
        self.targets = [
            (host, int(port)) for host, _, port in (each.rpartition(":") for each in words.targets)
        ]
        self.opened = self.failed = 0
        self.held: deque[Any] = deque()
        self.trusting = ssl.create_default_context()
        self.trusting.check_hostname = False
        self.trusting.verify_mode = ssl.CERT_NONE

    async def run(self) -> None:
        began = time.monotonic()
        self.ends_at = began + self.words.seconds
        await asyncio.gather(*(self.open_some() for _ in range(_AT_ONCE)))
        done = {"opened": self.opened, "failed": self.failed, "seconds": time.monotonic() - began}
        print(json.dumps(done), flush=True)

    async def open_some(self) -> None:
        while self.opened + self.failed < self.words.count and time.monotonic() < self.ends_at:
            target = self.targets[(self.opened + self.failed) % len(self.targets)]
            self.opened += 1
            try:
                self.hold(await asyncio.wait_for(self.open(*target), 10))
            except (OSError, asyncio.TimeoutError):  # an SSLError is one
                self.opened -= 1
                self.failed += 1

    async def open(self, host: str, port: int) -> Any:
        said = SAID[self.words.say]
        connection = socket.socket()
        try:
            connection.setblocking(False)
            if self.words.source:
                connection.setsockopt(socket.IPPROTO_IP, _NO_PORT, 1)
                connection.bind((self.words.source, 0))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, (host, port))
            if self.words.say == TLS_HEADER:
                _, writer = await asyncio.open_connection(
                    sock=connection, ssl=self.trusting, server_hostname=""
                )
                writer.write(said)
                return writer
            await loop.sock_sendall(connection, said)
            return connection
        except BaseException:
            connection.close()
            raise

    def hold(self, connection: Any) -> None:
        self.held.append(connection)
        if len(self.held) > self.words.held:
            self.held.popleft().close()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="+", metavar="ADDRESS:PORT")
    parser.add_argument("--count", type=int, default=sys.maxsize)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--say", choices=SAID, default=SILENT)
    parser.add_argument("--source", default="", help="its own address")
    parser.add_argument("--held", type=int, default=12_000, help="more are closed, the oldest first")
    flood = _Flood(parser.parse_args(arguments))
    asyncio.run(flood.run())
    sys.stdin.read()
    os._exit(0)


class Flood:
    """A run of it beside a test, for `with`; at the end its connections are closed."""

    def __init__(
        self, target: tuple[str, int], count: int, say: str = SILENT, source: str = "127.0.0.1"
    ) -> None:
        self._told = ""
        held = 500 if say == TLS_HEADER else 12_000  # each of its own takes 100 KiB of a client, too
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", __file__, f"{target[0]}:{target[1]}"),
                *("--count", str(count), "--say", say, "--source", source, "--held", str(held)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Flood:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def has_opened_all(self) -> bool:
        """Whether it holds what it could open."""
        assert self._process.stdout is not None
        if not self._told and select.select([self._process.stdout], [], [], 0)[0]:
            self._told = self._process.stdout.readline()
            print(f"flood: {self._told}", end="")
        return bool(self._told)


def answers_during(flood: Flood, ask: Callable[[], None]) -> float:
    """Ask over and over until the flood has opened all its connections; the longest answer, in seconds."""
    waits: list[float] = []
    while not (flood.has_opened_all and waits):
        began = time.monotonic()
        ask()
        waits.append(time.monotonic() - began)
    waits.sort()
    shown = f"median {waits[len(waits) // 2] * 1000:.1f} ms, slowest {waits[-1] * 1000:.1f} ms"
    print(f"{len(waits)} answers meanwhile: {shown}")
    return waits[-1]


def peak_mib(pid: int) -> float:
    """The memory that a process has had at most."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
