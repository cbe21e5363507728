"""Questions of the `%bitfusion` magic, answered on the socket in the private folder."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitfusion_kernel.magic.pool_table import render
from bitfusion_kernel.proxy.cells import client_command
from bitfusion_kernel.proxy.cells.client_command import ClientCommand, OnEnd, OnOutput
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.magic_socket import NAME, MagicSocket
from tests.kernel.magic.kernel_view import FakeKernel
from tests.support.machine import scaled

POOL = "- server 0 [10.0.0.1:56001]: running 1 tasks\n   |- GPU 0: free memory 0 MiB / 16160 MiB\n"


class Asked:
    """A magic socket that is served, and its address."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)
        self._loop = EventLoop()
        self._over = False
        self.kernel = FakeKernel()
        self.client = [sys.executable, "-c", f"print({POOL!r})"]
        self.magic_socket = MagicSocket(self._loop, self.kernel, self._run_client)
        self.magic_socket.listen_in(folder)
        self._stop, self._stopped = os.pipe()
        self._loop.on(self._stop, self._end)
        self._thread = threading.Thread(target=self._loop.run, kwargs={"until": lambda: self._over})
        self._thread.start()

    def _run_client(self, subcommand: str, on_output: OnOutput, on_end: OnEnd, limit: float) -> ClientCommand:
        assert subcommand == "list_gpus"
        return ClientCommand(self._loop, self.client, dict(os.environ), on_output, on_end, limit)

    def _end(self) -> None:
        self._over = True

    def ask(self, question: bytes) -> bytes:
        """One question on a connection of its own; all of the answer."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(scaled(5))
            peer.connect(self.path)
            answer = b""
            try:
                peer.sendall(question)
                while chunk := peer.recv(65536):
                    answer += chunk
            except (BrokenPipeError, ConnectionResetError):
                pass  # closed with a part of the question unread: a long one may come in two pieces
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
        # when the client has been asked
        ("request -p 0.5", "text", "The next cell asks for 1 GPU × 50 %."),
        ("request -n 2", "error", "No server of the pool can ever give this."),
    ],
)
def test_answers(asked: Asked, words: str, key: str, begin: str) -> None:
    answer: dict[str, Any] = json.loads(asked.ask(json.dumps({"words": words}).encode()))
    assert list(answer) == [key]
    assert answer[key].startswith(begin)


def test_the_client_that_the_kernel_runs_is_named(asked: Asked) -> None:
    answer = json.loads(asked.ask(b'{"words": "list_gpus"}'))
    assert answer == {"client": "list_gpus", "path": "/opt/bitfusion/bin/bitfusion"}


def test_the_pool_is_answered_as_the_table_that_a_cell_of_its_own_shows(asked: Asked) -> None:
    assert json.loads(asked.ask(b'{"words": "pool"}')) == {"bundle": render(POOL + "\n")}


@pytest.mark.parametrize("code", ["import sys; sys.exit('no pool')", "import time; time.sleep(600)"])
def test_a_client_that_fails_or_takes_long_is_left_to_the_kernel(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Whoever waits in the cell sees what the client itself says, and can interrupt it."""
    monkeypatch.setattr(client_command, "ASK_LIMIT", scaled(0.5))
    asked.client = [sys.executable, "-c", code]
    answer = json.loads(asked.ask(b'{"words": "pool"}'))
    assert answer == {"client": "list_gpus", "path": "/opt/bitfusion/bin/bitfusion"}


def test_several_may_ask_at_once_and_one_that_leaves_harms_nobody(asked: Asked) -> None:
    question = b'{"words": "request -p 0.5"}'
    peers = []
    for _ in range(3):
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(scaled(10))
        peer.connect(asked.path)
        peer.sendall(question)
        peers.append(peer)
    peers.pop(1).close()  # its client may still be asked when the socket is closed
    for peer in peers:
        assert b"1 GPU \\u00d7 50 %" in peer.recv(65536)
        peer.close()


def test_a_client_that_is_still_asked_ends_with_the_proxy(asked: Asked) -> None:
    asked.client = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)"]
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(scaled(10))
        peer.connect(asked.path)
        peer.sendall(b'{"words": "request -n 2"}')
        assert json.loads(asked.ask(b'{"words": "help"}'))["text"]  # others are answered meanwhile
        asked.close()
        assert peer.recv(1) == b""


def test_where_the_client_cannot_be_started_the_size_is_noted(asked: Asked) -> None:
    asked.client = ["/no/such/bitfusion"]
    answer = json.loads(asked.ask(b'{"words": "request -n 2"}'))
    assert answer == {"text": "The next cell asks for 2 GPUs."}


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
