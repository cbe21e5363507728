"""Questions of the `%bitfusion` magic, answered on the socket in the private folder."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.magic_socket import NAME, MagicSocket
from tests.kernel.magic.kernel_view import FakeKernel


class Asked:
    """A magic socket that is served, and its address."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)
        self._loop = EventLoop()
        self._over = False
        self.kernel = FakeKernel()
        self.magic_socket = MagicSocket(folder, self._loop, self.kernel)
        self._stop, self._stopped = os.pipe()
        self._loop.on(self._stop, self._end)
        self._thread = threading.Thread(target=self._loop.run, kwargs={"until": lambda: self._over})
        self._thread.start()

    def _end(self) -> None:
        self._over = True

    def ask(self, question: bytes) -> bytes:
        """One question on a connection of its own; all of the answer."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(5)
            peer.connect(self.path)
            peer.sendall(question)
            answer = b""
            while chunk := peer.recv(65536):
                answer += chunk
        return answer

    def close(self) -> None:
        """End the thread; nothing happens the second time."""
        if self._over:
            return
        os.write(self._stopped, b"x")
        self._thread.join()
        self.magic_socket.close()
        os.close(self._stop)
        os.close(self._stopped)


@pytest.fixture
def asked() -> Iterator[Asked]:
    with tempfile.TemporaryDirectory(dir=Path(os.environ["XDG_RUNTIME_DIR"]).parent) as folder:
        made = Asked(folder)
        yield made
        made.close()


@pytest.mark.parametrize(
    ("words", "key", "begin"),
    [
        ("help", "text", "%bitfusion status"),
        ("acquire", "text", "The GPU is being asked for."),
        ("relase", "error", "'relase' is no %bitfusion command"),
        ("list_gpus", "client", "list_gpus"),
    ],
)
def test_answers(asked: Asked, words: str, key: str, begin: str) -> None:
    answer: dict[str, Any] = json.loads(asked.ask(json.dumps({"words": words}).encode()))
    assert list(answer) == [key]
    assert answer[key].startswith(begin)


def test_a_kernel_that_runs_answers_for_itself(asked: Asked) -> None:
    asked.kernel.running = True
    assert json.loads(asked.ask(b'{"words": "acquire"}'))["text"] == "This kernel has its GPU already."


@pytest.mark.parametrize("question", [b"{", b"[]", b'{"words": 3}', b"{}", b"\xff", b"[" * 60_000])
def test_nonsense_is_not_answered_and_the_next_question_is(asked: Asked, question: bytes) -> None:
    assert asked.ask(question) == b""
    assert json.loads(asked.ask(b'{"words": "help"}'))["text"]


def test_a_peer_that_leaves_at_once_harms_nobody(asked: Asked) -> None:
    for _ in range(5):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(asked.path)
        assert json.loads(asked.ask(b'{"words": "help"}'))["text"]


def test_after_closing_nobody_answers(asked: Asked) -> None:
    asked.close()
    with pytest.raises(OSError, match="refused"):
        asked.ask(b'{"words": "help"}')
