"""A raw client of a kernel's sockets, which measures the kernel and not itself.

It reads iopub without a high-water mark, parses only what it needs, and chooses its own reconnect interval:
with the default of 100 ms a client that connects before the kernel has bound finds out up to 100 ms late.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import zmq
from jupyter_client.session import Session

FAST_RECONNECT_MS = 1
DEFAULT_RECONNECT_MS = 100  # libzmq's ZMQ_RECONNECT_IVL
DELIMITER = b"<IDS|MSG>"


class KernelSilent(RuntimeError):
    """The kernel did not answer in time."""


@dataclass(slots=True)
class Cell:
    """What one executed cell brought; ``seconds`` is from sending it until reply and idle are both there."""

    seconds: float = 0.0
    reply_at: float = 0.0
    result_at: float = 0.0
    status: str = ""
    error_name: str = ""
    text: str = ""
    messages: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    """New lines in stdout and stderr; counted in the raw JSON."""


class KernelClient:
    """Connects shell and iopub.

    ``reads=False`` leaves iopub subscribed and never reads it; the socket then holds one message, so what the
    kernel prints stays on the kernel's side.
    """

    def __init__(
        self,
        connection: Mapping[str, Any],
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        reconnect_ms: int = FAST_RECONNECT_MS,
        reads: bool = True,
    ) -> None:
        self._connection = connection
        self._context = context
        self._reconnect_ms = reconnect_ms
        key = connection["key"]
        self._session = Session(
            key=key if isinstance(key, bytes) else str(key).encode(),
            signature_scheme=connection["signature_scheme"],
        )
        self._shell = self._connect(zmq.DEALER, "shell_port")
        self._iopub = self._connect(zmq.SUB, "iopub_port", receive_limit=0 if reads else 1)
        self._poller = zmq.Poller()
        self._poller.register(self._shell, zmq.POLLIN)
        if reads:
            self._poller.register(self._iopub, zmq.POLLIN)
        self._reads = reads

    def __enter__(self) -> KernelClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets, dropping what was not read."""
        self._shell.close(linger=0)
        self._iopub.close(linger=0)

    def kernel_info(self, timeout: float = 60.0) -> dict[str, Any]:
        """Ask for kernel_info and return the reply's content."""
        asked = self._send("kernel_info_request", {})
        deadline = time.monotonic() + timeout
        while True:
            self._wait(self._shell, deadline, "kernel_info_request")
            _, parent, content = self._receive(self._shell)
            if parent == asked:
                reply: dict[str, Any] = json.loads(content)
                return reply

    def join_iopub(self, timeout: float = 60.0) -> None:
        """Return when the kernel's iopub is known to reach this client, and nothing is left to read."""
        deadline = time.monotonic() + timeout
        while True:
            self.kernel_info(timeout)
            if self._iopub.poll(50):
                break
            if time.monotonic() > deadline:
                raise KernelSilent("nothing arrives on iopub")
        while self._iopub.poll(50):
            self._iopub.recv_multipart()

    def send_cell(self, code: str, *, history: bool = True) -> str:
        """Send a cell and return its message id."""
        content = {
            "code": code,
            "silent": False,
            "store_history": history,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        return self._send("execute_request", content)

    def execute(self, code: str, *, timeout: float = 60.0, result: bool = False) -> Cell:
        """Run a cell until its reply and its idle are there, with ``result`` also its execute_result."""
        sent = time.perf_counter()
        return self.finish(self.send_cell(code), sent, timeout=timeout, result=result)

    def finish(self, asked: str, sent: float, *, timeout: float = 60.0, result: bool = False) -> Cell:
        """Read until the cell that was sent as ``asked`` at ``sent`` (perf_counter) has ended."""
        cell = Cell()
        idle = not self._reads
        deadline = time.monotonic() + timeout
        while not (cell.status and idle and (cell.result_at or not result)):
            ready = dict(self._poller.poll(_milliseconds_until(deadline)))
            if not ready:
                raise KernelSilent(
                    f"no end of the cell after {timeout:g} s (reply: {cell.status or 'none'}, "
                    f"idle: {idle}, iopub: {dict(cell.messages)})"
                )
            if self._iopub in ready:
                idle = self._read_output(asked, cell) or idle
            if self._shell in ready:
                _, parent, content = self._receive(self._shell)
                if parent == asked:
                    reply = json.loads(content)
                    cell.reply_at = time.perf_counter()
                    cell.status = reply["status"]
                    cell.error_name = reply.get("ename", "")
        cell.seconds = time.perf_counter() - sent
        return cell

    def wait_for_text(self, asked: str, timeout: float = 60.0) -> str:
        """Read iopub until the cell ``asked`` has printed something; return it."""
        cell = Cell()
        deadline = time.monotonic() + timeout
        while not cell.text:
            self._wait(self._iopub, deadline, "the cell's output")
            self._read_output(asked, cell)
        return cell.text

    def _read_output(self, asked: str, cell: Cell) -> bool:
        """Read one iopub message; true when it is the cell's idle."""
        kind, parent, content = self._receive(self._iopub)
        if parent != asked:
            return False
        cell.messages[kind] += 1
        if kind == "stream":
            cell.lines += content.count(b"\\n")
            if len(cell.text) < 1000:
                cell.text += json.loads(content)["text"]
        elif kind == "execute_result":
            cell.result_at = time.perf_counter()
            cell.text = json.loads(content)["data"].get("text/plain", "")
        return kind == "status" and json.loads(content)["execution_state"] == "idle"

    def _send(self, kind: str, content: dict[str, Any]) -> str:
        message = self._session.msg(kind, content)
        self._shell.send_multipart(self._session.serialize(message))
        return str(message["header"]["msg_id"])

    @staticmethod
    def _receive(socket: zmq.Socket[bytes]) -> tuple[str, str, bytes]:
        """Type, parent's id and raw content of one message; signatures are the tests' concern."""
        frames = socket.recv_multipart()
        start = frames.index(DELIMITER) + 2
        header = json.loads(frames[start])
        parent = json.loads(frames[start + 1])
        return header["msg_type"], parent.get("msg_id", ""), frames[start + 3]

    @staticmethod
    def _wait(socket: zmq.Socket[bytes], deadline: float, what: str) -> None:
        if not socket.poll(_milliseconds_until(deadline)):
            raise KernelSilent(f"no answer: {what}")

    def _connect(self, kind: int, port: str, receive_limit: int | None = None) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.reconnect_ivl = self._reconnect_ms
        if receive_limit is not None:
            socket.rcvhwm = receive_limit
        if receive_limit == 1:
            socket.rcvbuf = 4096
        if kind == zmq.SUB:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.connect(f"tcp://{self._connection['ip']}:{self._connection[port]}")
        return socket


def _milliseconds_until(deadline: float) -> int:
    return max(0, int((deadline - time.monotonic()) * 1000))
