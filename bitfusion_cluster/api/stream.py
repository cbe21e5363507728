"""The stream of a watch: lines as they arrive, a limit on silence, and an end from any thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

import urllib3

from bitfusion_cluster.api.errors import NoAnswer, cause_of

CHUNK = 1 << 16  # bytes read at once


class Stream:
    """The pieces of an answer that does not end by itself: a watch. A context manager; `close` ends it."""

    def __init__(self, response: urllib3.BaseHTTPResponse, read_timeout: float) -> None:
        self._response = response
        self._closed = False
        self._lock = threading.Lock()
        connection = response.connection
        self._socket: socket.socket | None = getattr(connection, "sock", None)
        self.set_read_timeout(read_timeout)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            self._socket = None
            self._response.close()

    def set_read_timeout(self, seconds: float) -> None:
        """From the next read on, silence of that many seconds is NoAnswer. For the reading thread only."""
        if self._socket is not None:
            self._socket.settimeout(seconds)

    def lines(self) -> Iterator[bytes]:
        """Whole lines as they arrive, without their end; ends when the server or `close` ends the answer.

        What comes after the last line end is dropped: it is half of something. Raises NoAnswer when the
        connection breaks or stays silent for longer than the read time limit.
        """
        pieces: list[bytes] = []
        for piece in self._pieces():
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                pieces.append(piece[start:end])
                line = b"".join(pieces)
                pieces.clear()
                start = end + 1
                if line.strip():
                    yield line
            if start < len(piece):
                pieces.append(piece[start:])

    def _pieces(self) -> Iterator[bytes]:
        read: Callable[[int], bytes] = self._response.read1
        while not self._closed:
            try:
                piece = read(CHUNK)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                if self._closed:
                    return
                raise NoAnswer(answered=cause_of(error)) from error
            if not piece:
                return
            yield piece

    def close(self) -> None:
        """End the answer at once, from any thread: a read that waits returns."""
        with self._lock:
            self._closed = True
            if self._socket is None:
                return
            try:
                # of the plain socket: the TLS object stays usable for the thread that reads from it
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except (OSError, TypeError):
                pass  # gone already, or TLS within a proxy's TLS: the read time limit ends that one
