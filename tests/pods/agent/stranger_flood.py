"""Strangers at an agent's port, of all kinds in turn: `stranger_flood.py KEYS PORT COUNT`; says how many.

A process of its own, so that it takes no time of the client's whose program answers meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bitfusion_pods.stream.frames import Kind
from bitfusion_pods.stream.greeting import Greeting
from tests.pods.frame_bytes import encode
from tests.pods.stream.sides import CLIENT, POD, STRANGER, Keys

MOST_OPEN = 40
LIMIT_S = 1.0
HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(100)


class Flood:
    """Those that are connected; the oldest are closed when there are many."""

    def __init__(self, keys: Path, port: int) -> None:
        self._port = port
        made = Keys.__new__(Keys)
        made.folder = keys
        self._right = made.context(CLIENT, POD)
        self._wrong = made.context(CLIENT, POD)
        folder = keys / STRANGER
        self._wrong.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._none = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._none.check_hostname, self._none.verify_mode = False, ssl.CERT_NONE
        self._open: list[socket.socket] = []
        frame = encode(Kind.DATA, 1, bytes(1000))
        self.kinds: tuple[Callable[[], None], ...] = (
            lambda: self._says(b""),
            lambda: self._says(b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n"),
            lambda: self._says(HELLO),
            lambda: self._says(HELLO[:3]),
            lambda: self._says(os.urandom(4096)),
            lambda: self._says(frame),
            lambda: self._says(frame[:-500]),
            lambda: self._says(struct.pack("!BII", Kind.DATA, 1, 2**32 - 1)),
            lambda: self._says(b"\x16\x03\x01\xff\xff" + bytes(30_000)),
            self._resets,
            lambda: self._shakes(self._none, b"GET / HTTP/1.1\r\n\r\n"),
            lambda: self._shakes(self._wrong, Greeting(b"0123456789abcdef", 0).encode() + frame),
            lambda: self._shakes(self._right, b"no greeting of this protocol at all, " + frame),
            lambda: self._shakes(self._right, Greeting(b"another session!", 0).encode() + frame),
        )

    def _dial(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port), timeout=LIMIT_S)
        self._open.append(made)
        while len(self._open) > MOST_OPEN:
            self._open.pop(0).close()
        return made

    def _says(self, words: bytes) -> None:
        """All at once, or byte by byte; and stays."""
        self._dial().sendall(words)
        slow = self._open[0]
        with contextlib.suppress(OSError):
            slow.send(b"\x16")

    def _resets(self) -> None:
        made = self._dial()
        made.sendall(HELLO)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        made.close()
        self._open.remove(made)

    def _shakes(self, context: ssl.SSLContext, words: bytes) -> None:
        raw = self._dial()
        self._open.remove(raw)
        with context.wrap_socket(raw, do_handshake_on_connect=False) as made:
            made.do_handshake()
            made.sendall(words)
            select.select([made], [], [], LIMIT_S)
            answer = made.recv(1000)
            assert not answer, f"it was let in: {answer!r}"


def main() -> None:
    os.nice(10)  # on another machine they would take no time of this one's
    flood = Flood(Path(sys.argv[1]), int(sys.argv[2]))
    refused = 0
    began = time.monotonic()
    for _, kind in zip(range(int(sys.argv[3])), itertools.cycle(flood.kinds), strict=False):
        try:
            kind()
        except OSError:
            refused += 1
    print(f"{sys.argv[3]} in {time.monotonic() - began:.1f} s, of them {refused} were told at once")


if __name__ == "__main__":
    main()
