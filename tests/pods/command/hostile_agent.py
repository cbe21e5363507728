"""An agent with the right key that says whatever a test wants."""

from __future__ import annotations

import select
import socket
import ssl
import threading

from bitfusion_pods.stream.greeting import LENGTH, Greeting, decode
from tests.pods.stream.sides import CLIENT, POD, Keys


class HostileAgent:
    """Listens on `port`; each client hears a greeting, then `words` once or `again` and again, and silence.

    Args:
        keys: Of both sides.
        words: What it says.
        again: Whether it says that until the client has left.
        reads: Whether it reads what it is told.
    """

    def __init__(self, keys: Keys, words: bytes, *, again: bool = False, reads: bool = True) -> None:
        self._context = keys.context(POD, CLIENT)
        self._words, self._again, self._reads = words, again, reads
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.said = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            try:
                with self._context.wrap_socket(raw, server_side=True) as connection:
                    self._serve(connection)
            except OSError:
                pass

    def _serve(self, connection: ssl.SSLSocket) -> None:
        """One thread for both directions: OpenSSL allows no more."""
        theirs = decode(connection.recv(LENGTH))
        connection.sendall(Greeting(theirs.session, 0).encode())
        connection.setblocking(False)
        left = self._words
        while True:
            select.select([connection] if self._reads else [], [connection] if left else [], [], 0.2)
            try:
                if self._reads and not connection.recv(1 << 16):
                    return
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            try:
                sent = connection.send(left) if left else 0
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            left = left[sent:]
            self.said += sent
            if not left and self._again:
                left = self._words

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
