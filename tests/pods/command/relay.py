"""A network between a command and its pod that the test cuts, resets, or takes away."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time

from tests.support.ports import free_port


class Relay:
    """Connections to `port`, or to `address`, go on to `target`.

    With `refuse` "reset" new ones do not; with "half-open" they are taken, and nobody is behind.
    """

    def __init__(self, target: int, address: tuple[str, int] | None = None) -> None:
        host, self.port = address or ("127.0.0.1", free_port())
        self.refuse = ""
        self.still = False
        """Whether nothing is passed on, and nobody is told so."""
        self.silent = ""
        """The same in one direction, "to pod" or "to client"."""
        self._target = target
        self._listener: socket.socket | None = socket.create_server((host, self.port))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._alone: list[socket.socket] = []
        self._over = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            if self.still:
                time.sleep(0.01)
                continue
            with self._lock:
                deaf = {"to pod": 0, "to client": 1}.get(self.silent)  # whom the relay does not hear
                sources = [end for pair in self._pairs for side, end in enumerate(pair) if side != deaf]
                sources += [self._listener] if self._listener else []
            try:  # without the lock, or a test that wants to cut would hardly ever get it
                ready, _, _ = select.select(sources, [], [], 0.01)
            except (OSError, ValueError):  # one was closed meanwhile
                continue
            with self._lock:
                for source in ready:
                    if source is self._listener:
                        self._accept()
                    elif (other := self._others().get(source)) is not None:
                        self._pass_on(source, other)

    def _others(self) -> dict[socket.socket, socket.socket]:
        return {end: other for pair in self._pairs for end, other in (pair, pair[::-1])}

    def _accept(self) -> None:
        assert self._listener is not None
        near, _ = self._listener.accept()
        if self.refuse == "half-open":
            self._alone.append(near)
            return
        far = socket.socket()
        try:
            far.connect(("127.0.0.1", self._target))
        except OSError:
            far.close()
            near.close()
            return
        if self.refuse:
            _reset(near)
            _reset(far)
            return
        self._pairs.append((near, far))

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            data = source.recv(1 << 16)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for pair in [pair for pair in self._pairs if source in pair]:
            self._pairs.remove(pair)
            for end in pair:
                end.close()

    def cut(self, farewell: bool = False) -> None:
        """Reset all connections that there are; with a `farewell` the target's ends are closed in order."""
        with self._lock:
            for near, far in self._pairs:
                _reset(near)
                far.close() if farewell else _reset(far)
            self._pairs.clear()
            for end in self._alone:
                _reset(end)
            self._alone.clear()

    def stop_listening(self) -> None:
        """Nobody is there any more."""
        with self._lock:
            if self._listener is not None:
                self._listener.close()
                self._listener = None

    def close(self) -> None:
        self.stop_listening()
        self._over = True
        self._thread.join()
        self.cut()


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()
