"""A relay that holds everything back for a while, as a long way does: TARGET SECONDS; prints its port."""

from __future__ import annotations

import selectors
import socket
import sys
import time
from collections import deque

MOST_HELD = 1 << 23
"""Bytes under way in one direction."""


class Direction:
    """From one socket to another."""

    def __init__(self, source: socket.socket, sink: socket.socket, delay: float) -> None:
        self.source, self.sink = source, sink
        self._delay = delay
        self._held: deque[tuple[float, bytes]] = deque()
        self._size = 0

    @property
    def has_room(self) -> bool:
        return self._size < MOST_HELD

    def read(self) -> bool:
        """Whether it goes on."""
        data = self.source.recv(1 << 16)
        if data:
            self._held.append((time.monotonic() + self._delay, data))
            self._size += len(data)
        return bool(data)

    def pass_on(self) -> float:
        """What is due; seconds to the next."""
        while self._held:
            due, data = self._held[0]
            if (left := due - time.monotonic()) > 0:
                return left
            try:
                sent = self.sink.send(data)
            except BlockingIOError:
                return 0.001
            self._size -= sent
            self._held.popleft()
            if sent < len(data):
                self._held.appendleft((due, data[sent:]))
        return 1.0


def main(target: int, delay: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", target))
            except OSError:  # the agent does not listen yet
                near.close()
                continue
            with near, far:
                serve(near, far, delay)


def serve(near: socket.socket, far: socket.socket, delay: float) -> None:
    """One connection, to its end."""
    for end in (near, far):
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    directions = [Direction(near, far, delay), Direction(far, near, delay)]
    patience = 1.0
    while True:
        with selectors.DefaultSelector() as selector:
            for each in directions:
                if each.has_room:
                    selector.register(each.source, selectors.EVENT_READ, each)
            ready = selector.select(patience)
        try:
            if not all(key.data.read() for key, _ in ready):
                return
            patience = min(each.pass_on() for each in directions)
        except OSError:
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
