"""A faithful stand-in for a kernel's proxy: it answers on its socket as the contract says."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bitfusion_client.kernel_state import proxy_socket

Json = dict[str, Any]

STATE: Json = {
    "version": 1,
    "state": "none",
    "since": 1_800_000_000.0,
    "idle_since": None,
    "notebook": "x.ipynb",
    "kernel_id": "abc",
    "request": {"text": "1 GPU × 50 %", "what_is_left": False, "gpus": 1, "partial": 0.5},
    "asked_at": None,
    "granted_at": None,
    "waited_s": None,
    "queue": None,
    "lease": None,
}


class StandInProxy:
    """Listens where the proxy of this connection file would.

    Attributes:
        asked: The questions that were no questions for a state.
        answers: What is answered to each, by its words; None: the connection is closed.
    """

    def __init__(self, connection_file: Path) -> None:
        key = connection_file.name.encode()
        connection_file.write_text(json.dumps({"key": key.decode()}))
        self.folder = proxy_socket.folders(os.environ, key)[0]
        os.makedirs(self.folder, 0o700, exist_ok=True)
        self.path = os.path.join(self.folder, proxy_socket.NAME)
        self.state = dict(STATE)
        self.asked: list[Json] = []
        self.answers: dict[str, Json | None] = {}
        self.refuses_watchers = False
        self._watchers: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def become(self, **fields: Any) -> None:
        """Publish another state."""
        self.state = self.state | fields
        for watcher in self._watchers:
            watcher.sendall(json.dumps(self.state).encode() + b"\n")

    def end(self) -> None:
        """As a proxy ends."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._listener.close()
        for watcher in self._watchers:
            watcher.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def remove(self) -> None:
        """The same, and its folder goes too."""
        self.end()
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))
        os.rmdir(self.folder)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection.makefile("rb") as lines:
                line = lines.readline()
            if not line:
                connection.close()
                continue
            self._answer(connection, json.loads(line))

    def _answer(self, connection: socket.socket, question: Json) -> None:
        answer: Json | None
        watches = question == {"state": "changes"} and not self.refuses_watchers
        if watches:
            self._watchers.append(connection)
        if watches or question == {"state": "now"}:
            answer = self.state
        elif question == {"state": "changes"}:
            answer = {"error": "this kernel's state is watched by 16 processes already"}
        else:
            self.asked.append(question)
            answer = self.answers.get(question.get("words") or question["do"])
        with contextlib.suppress(OSError):  # who has asked may be gone
            if answer is not None:
                connection.sendall(json.dumps(answer).encode() + b"\n")
        if not watches:
            connection.close()


@contextlib.contextmanager
def stand_in_proxy(connection_file: Path) -> Iterator[StandInProxy]:
    """One, for a test."""
    proxy = StandInProxy(connection_file)
    try:
        yield proxy
    finally:
        proxy.remove()
