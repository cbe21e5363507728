"""A TCP proxy on loopback that passes bytes on, until it is told to cut, to refuse, or to stall."""

from __future__ import annotations

import select
import socket
import struct
import threading
from types import TracebackType

from tests.support.machine import scaled

PIECE = 1 << 16


class TcpProxy:
    """Stands before one port of 127.0.0.1. A context manager; `port` is where it listens."""

    def __init__(self, target: int) -> None:
        self.target = target
        """The port that new connections go to; may be changed at any time."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        """How many were accepted so far."""
        self._open: set[socket.socket] = set()
        self._targets: list[int] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._ending = False
        self._threads = [threading.Thread(target=self._accept, name="proxy", daemon=True)]

    def __enter__(self) -> TcpProxy:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        self._flowing.set()
        # wakes accept()
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._threads[0].join(scaled(5))
        self._listener.close()
        self.cut()
        for thread in self._threads[1:]:
            thread.join(scaled(5))

    def has_left(self, target: int) -> bool:
        """Whether no connection to this port is open."""
        with self._lock:
            return target not in self._targets

    def cut(self) -> None:
        """Reset every open connection; new ones are let through."""
        with self._lock:
            for each in self._open:
                try:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def refuse(self, refusing: bool = True) -> None:
        """Close new connections at once."""
        self._refusing = refusing

    def stall(self) -> None:
        """Connections stay open, new ones are accepted, and no byte passes any more."""
        self._flowing.clear()

    def flow(self) -> None:
        """The end of `stall`: what waited passes on."""
        self._flowing.set()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._ending:
                client.close()
                return
            if self._refusing:
                client.close()
                continue
            self.connections += 1
            thread = threading.Thread(target=self._pass_on, args=(client,), name="proxied", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, client: socket.socket) -> None:
        target = self.target
        with client, socket.create_connection(("127.0.0.1", target)) as server:
            pair = {client: server, server: client}
            with self._lock:
                self._open |= set(pair)
                self._targets.append(target)
            try:
                while not self._ending:
                    for ready in select.select(list(pair), [], [], 0.2)[0]:
                        self._flowing.wait()
                        piece = ready.recv(PIECE)
                        if not piece:
                            return
                        pair[ready].sendall(piece)
            except OSError:
                return
            finally:
                with self._lock:
                    self._open -= set(pair)
                    self._targets.remove(target)
