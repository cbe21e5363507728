"""Questions of the `%bitfusion` magic, answered on the socket in the private folder."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.kernel_state import watch
from bitfusion_client.kernel_state.proxy_socket import NAME
from bitfusion_client.kernel_state.watch import Watch
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.magic import commands
from bitfusion_kernel.magic.commands import RESTARTS
from bitfusion_kernel.magic.pool_table import render
from bitfusion_kernel.proxy import kernel_state, magic_socket, peer
from bitfusion_kernel.proxy.cells import client_command
from bitfusion_kernel.proxy.cells.client_command import ClientCommand, OnEnd, OnOutput
from bitfusion_kernel.proxy.cells.request_queue import RequestsInKernel
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
from bitfusion_kernel.proxy.magic_socket import MagicSocket
from bitfusion_kernel.proxy.state_board import StateBoard
from tests.kernel.magic.kernel_view import FakeKernel
from tests.support.kernel_state_schema import check
from tests.support.machine import scaled
from tests.support.waiting import wait_until

POOL = "- server 0 [10.0.0.1:56001]: running 1 tasks\n   |- GPU 0: free memory 0 MiB / 16160 MiB\n"


class FakeOrders:
    """Does nothing, and says what `proxy.orders` says."""

    def acquire(self, order: commands.AwaitGpu) -> str:
        """As there."""
        return order.meanwhile

    def give_back(self, order: commands.GiveBack) -> str:
        """As there."""
        return order.meanwhile

    def keep(self) -> str:
        """As there."""
        return "kept"


class Asked:
    """A magic socket that is served, and its address."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)
        self._loop = EventLoop()
        self._over = self._closing = False
        self._actions: list[Callable[[], object]] = []
        self.kernel = FakeKernel()
        self.client = [sys.executable, "-c", f"print({POOL!r})"]
        self.lifecycle = KernelLifecycle(lambda: Acquisition(1, GpuRequest(), time.monotonic()))
        self.in_kernel = RequestsInKernel()
        self.board = StateBoard(
            self._loop,
            self.lifecycle,
            self.in_kernel,
            lambda: kernel_state.Asked(GpuRequest(2, 0.5)),
            lambda: False,
            "x.ipynb",
            "5e-1",
        )
        self.lifecycle.on_change = self.board.touch
        self.orders: Any = FakeOrders()
        self.magic_socket = MagicSocket(
            self._loop, self.kernel, self._run_client, self.board, lambda: self.orders
        )
        self.magic_socket.listen_in(folder)
        self._stop, self._stopped = os.pipe()
        self._loop.on(self._stop, self._end)
        self._thread = threading.Thread(target=self._loop.run, kwargs={"until": lambda: self._over})
        self._thread.start()

    def _run_client(self, subcommand: str, on_output: OnOutput, on_end: OnEnd, limit: float) -> ClientCommand:
        assert subcommand == "list_gpus"
        return ClientCommand(self._loop, self.client, dict(os.environ), on_output, on_end, limit)

    def _end(self) -> None:
        os.read(self._stop, 1)  # first: an action lets the test go on, which may close at once
        while self._actions:
            self._actions.pop(0)()
        self._over = self._closing

    def do(self, action: Callable[[], object]) -> None:
        """Have the loop do something."""
        self._actions.append(action)
        os.write(self._stopped, b"x")

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
        if self._closing:
            return
        self._closing = True
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
        ("acquire", "text", "Requesting the GPU."),
        ("relase", "error", "Unknown command 'relase'"),
        # when the client has been asked
        ("request -p 0.5", "text", "The next cell asks for 1 GPU × 50 %."),
        ("request -n 2", "error", "No server in the pool can ever satisfy this request."),
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
        told = json.loads(peer.recv(65536))
        assert told == {"error": "This kernel is shutting down.\nWhat to do: start it again."}
        assert peer.recv(1) == b""


def test_where_the_client_cannot_be_started_the_size_is_noted(asked: Asked) -> None:
    asked.client = ["/no/such/bitfusion"]
    answer = json.loads(asked.ask(b'{"words": "request -n 2"}'))
    assert answer == {"text": f"The next cell asks for 2 GPUs.\n{RESTARTS}"}


def test_a_kernel_that_runs_answers_for_itself(asked: Asked) -> None:
    asked.kernel.running = True
    assert json.loads(asked.ask(b'{"words": "acquire"}'))["text"] == "This kernel already has its GPU."


def test_a_word_to_keep_the_gpu_is_heard_and_no_other(asked: Asked) -> None:
    assert json.loads(asked.ask(b'{"do": "keep"}')) == {"text": "kept"}
    told = json.loads(asked.ask(b'{"do": "' + b"x" * 60_000 + b'"}'))
    assert told == {"error": f"this kernel can't {'x' * 40!r}: all that it can do is keep"}


@pytest.mark.parametrize(
    "question", [b"{", b"[]", b'{"do": 3}', b'{"words": 3}', b"{}", b"\xff", b"[" * 60_000]
)
def test_nonsense_is_not_answered_and_the_next_question_is(asked: Asked, question: bytes) -> None:
    assert asked.ask(question) == b""
    assert json.loads(asked.ask(b'{"words": "help"}'))["text"]


def test_a_peer_that_leaves_at_once_harms_nobody(asked: Asked) -> None:
    for _ in range(5):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(asked.path)
        assert json.loads(asked.ask(b'{"words": "help"}'))["text"]


# -- the kernel's state ----------------------------------------------------------------------------


def test_the_state_is_answered_once_or_at_each_change(asked: Asked) -> None:
    once = json.loads(asked.ask(watch.NOW))
    check(once)
    assert (once["state"], once["kernel_id"], once["request"]["text"]) == ("none", "5e-1", "2 GPUs × 50 %")
    with Watch(os.path.dirname(asked.path)) as watcher:
        assert watcher.wait(scaled(5)) == [once]
        asked.do(asked.lifecycle.request)
        (waiting,) = watcher.wait(scaled(5))
        assert (waiting["state"], waiting["lease"]) == ("waiting", None)
        assert waiting["since"] >= once["since"]
        asked.do(asked.board.touch)  # nothing new
        assert watcher.wait(0.3) == []


def test_watchers_are_so_many_at_most_and_one_that_leaves_makes_room(asked: Asked) -> None:
    folder = os.path.dirname(asked.path)
    watchers = [Watch(folder) for _ in range(magic_socket.MOST_WATCHERS)]
    assert all(watcher.wait(scaled(5)) for watcher in watchers)
    with Watch(folder) as refused:
        assert refused.wait(scaled(5)) == []
        assert refused.refused == "this kernel's state is watched by 16 processes already"
    watchers.pop().close()
    asked.ask(watch.NOW)  # the loop has seen it
    with Watch(folder) as last:
        assert last.wait(scaled(5))
        asked.do(asked.lifecycle.request)
        assert all(watcher.wait(scaled(5))[0]["state"] == "waiting" for watcher in [*watchers, last])
    for watcher in watchers:
        watcher.close()


def _flood(asked: Asked, lines: int) -> None:
    """Tell so many changes, of 4 KB each, in one go."""
    told = {**asked.board.look(), "filler": "x" * 4096}

    def tell() -> None:
        for number in range(lines):
            for each in list(asked.board._watchers.values()):
                each({**told, "number": number})

    asked.do(tell)


def test_of_what_a_slow_reader_has_missed_it_gets_the_newest(asked: Asked) -> None:
    with Watch(os.path.dirname(asked.path)) as watcher:
        assert watcher.wait(scaled(5))
        _flood(asked, 5000)
        asked.ask(watch.NOW)  # after the flood
        numbers: list[int] = []
        while not numbers or numbers[-1] < 4999:
            numbers += [state["number"] for state in watcher.wait(scaled(5))]
        assert len(numbers) < 4000
        assert numbers == sorted(numbers)


def test_who_never_reads_is_left_after_a_time_and_nobody_waits_for_it(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "TAKE_LIMIT", scaled(0.3))
    with Watch(os.path.dirname(asked.path)) as watcher:
        assert watcher.wait(scaled(5))
        _flood(asked, 5000)
        asked.ask(watch.NOW)
        (waiting,) = asked.magic_socket._watchers
        assert len(waiting._outgoing) + len(waiting._newest) < 20_000
        wait_until(lambda: not asked.magic_socket._peers, "it is left")
        assert asked.board._watchers == {}
        while not watcher.closed:
            watcher.wait(1)


@pytest.mark.parametrize("said", [b"", b"{", b'{"state": "now"', b'{"words": "' + b"x" * 60_000])
def test_who_says_half_a_question_is_left_after_a_second_and_nobody_waits_for_it(
    asked: Asked, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "QUESTION_LIMIT", 600.0)
    with socket.socket(socket.AF_UNIX) as half:
        half.connect(asked.path)
        half.sendall(said)
        assert json.loads(asked.ask(watch.NOW))["state"] == "none"
        half.setblocking(False)
        with pytest.raises(BlockingIOError):
            half.recv(1)
    monkeypatch.setattr(peer, "QUESTION_LIMIT", 0.1)
    assert asked.ask(said) == b""


@pytest.mark.parametrize("said", [b"{" + b" " * 1_000_000 + b"}", b'{"words": "' + b"x" * 1_000_000])
def test_a_question_of_a_megabyte_is_none(asked: Asked, said: bytes) -> None:
    assert asked.ask(said) == b""
    assert json.loads(asked.ask(watch.NOW))["state"] == "none"


def test_a_question_in_pieces_is_one_and_a_watcher_that_speaks_on_is_left(asked: Asked) -> None:
    with socket.socket(socket.AF_UNIX) as slow:
        slow.settimeout(scaled(5))
        slow.connect(asked.path)
        for piece in (b'{"x": {}', b', "state": ', b'"changes"}', b"\n"):
            slow.sendall(piece)
            asked.ask(watch.NOW)
        assert json.loads(slow.recv(65536))["state"] == "none"
        slow.sendall(watch.CHANGES)
        assert slow.recv(1) == b""


def test_connections_are_so_many_at_most(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "QUESTION_LIMIT", 60.0)
    crowd = [socket.socket(socket.AF_UNIX) for _ in range(magic_socket.MOST_PEERS + 1)]
    for each in crowd:
        each.settimeout(scaled(5))
        each.connect(asked.path)
    assert crowd[-1].recv(1) == b""
    for each in crowd:
        each.close()
    wait_until(lambda: not asked.magic_socket._peers, "they are gone")
    assert json.loads(asked.ask(watch.NOW))["state"] == "none"


def test_the_end_of_the_proxy_is_told_first(asked: Asked) -> None:
    with Watch(os.path.dirname(asked.path)) as watcher:
        assert watcher.wait(scaled(5))
        asked.do(asked.lifecycle.request)
        assert watcher.wait(scaled(5))[0]["state"] == "waiting"

        def end() -> None:
            asked.lifecycle.end(0)
            asked.board.close()

        asked.do(end)
        assert watcher.wait(scaled(5))[0]["state"] == "releasing"
        asked.close()
        assert watcher.wait(scaled(5)) == []
        assert watcher.closed


def test_after_closing_nobody_answers(asked: Asked) -> None:
    asked.close()
    with pytest.raises(OSError, match="refused"):
        asked.ask(b'{"words": "help"}')
