"""A real proxy process and a small client over zmq, with a `bitfusion` command made for the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import zmq

import bitfusion_kernel
from bitfusion_client.kernel_state import proxy_socket
from bitfusion_kernel.processes.meeting_point import Gone, Refused, Silent
from bitfusion_kernel.processes.supervisor_link import join_supervisor
from bitfusion_kernel.protocol.connection_file import CHANNELS, ConnectionInfo
from bitfusion_kernel.protocol.wire import Message, Wire
from bitfusion_kernel.proxy.requests.control_requests import INTERRUPT_DELAY
from tests.support.machine import scaled
from tests.support.waiting import Deadline, wait_until

ENTRY = Path(bitfusion_kernel.__file__).with_name("__main__.py")
LIMIT_S = 15.0
STAMP = "[INFO] 2026-11-21T00:00:00Z"

WAIT_FOR_EVER = f"""
print("{STAMP} Waiting for GPUs: position 1 of 2; held by ada: x.ipynb (1 GPU, <14:03>)", flush=True)
time.sleep(60)
"""
GRANT = f"""
print("{STAMP} Requesting GPUs [0] with 16160 MiB of memory from server 0, with version 4.0.0...", flush=True)
sys.exit(subprocess.call(words[words.index("--") + 1 :]))
"""


def refuse(text: str, status: int = 1) -> str:
    """A client that prints this and fails."""
    return f"print({text!r}, file=sys.stderr, flush=True); sys.exit({status})"


class ProxyHarness:
    """Starts one proxy; `run` is the Python text of its `bitfusion run`, `others` that of other commands."""

    def __init__(
        self,
        run: str = WAIT_FOR_EVER,
        *,
        others: str = "print('unknown')",
        options: tuple[str, ...] = (),
        python: str = sys.executable,
        entry: Path = ENTRY,
        **environment: str,
    ) -> None:
        # Short paths: unix sockets allow 107 bytes.
        self._place = tempfile.TemporaryDirectory(dir=Path(os.environ["XDG_RUNTIME_DIR"]).parent)
        self.folder = Path(self._place.name)
        self.client = self.folder / "bitfusion"
        self.script(run, others)
        fields: dict[str, Any] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
        key = os.urandom(8).hex()  # two proxies with one key would be a kernel and its restart
        fields |= {"transport": "ipc", "ip": str(self.folder / "s"), "key": key}
        file = self.folder / "connection.json"
        file.write_text(json.dumps(fields))
        self.info = ConnectionInfo(fields)
        self.wire = Wire(key.encode())
        environ = dict(os.environ, JPY_PARENT_PID=str(os.getpid()), BITFUSION_CLIENT=str(self.client))
        environ |= {"IPYTHONDIR": str(self.folder / "ipython"), "XDG_STATE_HOME": str(self.folder / "state")}
        self.stderr = self.folder / "stderr"
        self.argv = [python, "-I", "-S", str(entry), "-f", str(file), *options]
        with self.stderr.open("w") as stderr:
            self.environ = environ | environment
            self.process = subprocess.Popen(self.argv, env=self.environ, stderr=stderr)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.shell = self._connect(zmq.DEALER, "shell")
        self.control = self._connect(zmq.DEALER, "control")
        self.iopub = self.subscriber()
        self.published: list[Message] = []
        self._replies: list[Message] = []
        self.on_iopub(lambda message: message.type == "iopub_welcome")

    def script(self, run: str, others: str = "print('unknown')") -> None:
        """Change what the `bitfusion` command does from now on."""
        new = self.client.with_suffix(".new")
        new.write_text(
            f"#!{sys.executable} -IS\nimport os, signal, subprocess, sys, time\nwords = sys.argv[1:]\n"
            f"if words[0] != 'run':\n    {others}\n    sys.exit(0)\n{run}\n"
        )
        new.chmod(0o755)
        new.rename(self.client)

    def _connect(self, kind: int, channel: str) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.linger = 0
        socket.reconnect_ivl = 5
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(self.info.address(channel))
        return socket

    def subscriber(self) -> zmq.Socket[bytes]:
        """One more client's iopub."""
        return self._connect(zmq.SUB, "iopub")

    def send(
        self, message_type: str, *, on: str = "shell", header: dict[str, Any] | None = None, **content: Any
    ) -> str:
        """The id of the request sent."""
        frames = self.wire.build(message_type, content)
        frames[2] = json.dumps(json.loads(frames[2]) | (header or {})).encode()
        frames[1] = self.wire.sign(frames[2:])
        (self.shell if on == "shell" else self.control).send_multipart(frames)
        return self.wire.read(frames).id

    def cell(self, code: str, *, subshell: str | None = None, **content: Any) -> str:
        """The id of a cell."""
        return self.send("execute_request", header={"subshell_id": subshell}, code=code, **content)

    def on_iopub(self, wanted: Callable[[Message], bool]) -> Message:
        """The next message of a kind; all that come are kept in `published`."""
        deadline = Deadline(LIMIT_S)
        while self.iopub.poll(deadline.left_ms):
            message = self.wire.read(self.iopub.recv_multipart())
            self.published.append(message)
            if wanted(message):
                return message
        raise AssertionError(f"not published; there were {[m.type for m in self.published]}")

    def reply(self, request: str, *, on: str = "shell") -> dict[str, Any]:
        """The content of the reply to a request; all that come are kept."""
        return self.reply_message(request, on=on).content

    def reply_message(self, request: str, *, on: str = "shell") -> Message:
        """All of the reply."""
        for message in self._replies:
            if message.parent_header["msg_id"] == request:
                return message
        socket = self.shell if on == "shell" else self.control
        deadline = Deadline(LIMIT_S)
        while socket.poll(deadline.left_ms):
            message = self.wire.read(socket.recv_multipart())
            self._replies.append(message)
            if message.parent_header["msg_id"] == request:
                return message
        raise AssertionError(f"no reply; stderr: {self.stderr.read_text()}")

    def error(self, request: str) -> dict[str, Any]:
        """The content of the error that is shown for a request."""
        return self.on_iopub(
            lambda message: message.type == "error" and message.parent_header.get("msg_id") == request
        ).content

    def unanswered(self, *requests: str) -> bool:
        """Whether there is no reply to these, once the proxy has ended and nothing more can come."""
        assert self.process.poll() is not None
        while self.shell.poll(100):
            self._replies.append(self.wire.read(self.shell.recv_multipart()))
        return not {reply.parent_header["msg_id"] for reply in self._replies} & set(requests)

    def until_idle(self, request: str) -> list[Message]:
        """What is published for one request, to its `idle`."""
        if not any(_is_idle(message, request) for message in self.published):
            self.on_iopub(lambda message: _is_idle(message, request))
        return [message for message in self.published if message.parent_header.get("msg_id") == request]

    def shown(self, request: str, words: str = "") -> str:
        """The text of the next display of a wait in a cell that holds these words.

        The first one says nothing of a queue where the client takes its time to start.
        """

        def is_shown(message: Message) -> bool:
            is_display = message.type.endswith("display_data")
            return is_display and message.parent_header.get("msg_id") == request and words in text(message)

        def text(message: Message) -> str:
            return str(message.content["data"]["text/plain"])

        return text(self.on_iopub(is_shown))

    def printed(self, request: str) -> str:
        """The stream output of one cell, at its end, which is also its reply.

        ipykernel 7.0 to 7.3 may sleep over a request that arrives while it replies, also without a
        proxy: once in some hundred cells that are sent at the `idle` of the one before. 7.4 does not.
        """
        published = self.until_idle(request)
        self.reply(request)
        return "".join(m.content["text"] for m in published if m.type == "stream")

    def interrupt(self) -> None:
        """As clients send it."""
        self.reply(self.send("interrupt_request", on="control"), on="control")

    def interrupt_and_shut_down(self, *, restart: bool) -> bool:
        """As Jupyter does both; False where the machine stood still, and the first may have counted alone."""
        begin = time.monotonic()
        self.interrupt()
        request = self.send("shutdown_request", on="control", restart=restart)
        assert self.reply(request, on="control") == {"status": "ok", "restart": restart}
        return time.monotonic() - begin < INTERRUPT_DELAY

    @property
    def private_folder(self) -> Path:
        """The proxy's."""
        return Path(proxy_socket.folders(self.environ, self.info.key)[0])

    def await_socket(self) -> str:
        """The path of its socket, once it listens there: Jupyter's first question is answered first."""
        path = str(self.private_folder / proxy_socket.NAME)
        wait_until(
            lambda: proxy_socket.connect(path, scaled(5)), "the proxy's socket", errors=(OSError,)
        ).close()
        return path

    def close(self) -> None:
        """End the proxy, gently first."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(scaled(10))
        for socket in (self.shell, self.control, self.iopub):
            socket.close()
        self.context.term()
        self._end_what_is_kept()
        self._place.cleanup()

    def _end_what_is_kept(self) -> None:
        """A supervisor that waits for a restart."""
        for folder in proxy_socket.folders(self.environ, self.info.key):
            try:
                link = join_supervisor(folder, 0)
            except (Gone, Silent, Refused):
                continue
            link.stop()
            link.await_release(scaled(10))
            link.close()
            wait_until(partial(_is_gone, folder), "the end of a supervisor")


def _is_gone(folder: str) -> bool:
    return not os.path.exists(folder)


def _is_idle(message: Message, request: str) -> bool:
    return message.parent_header.get("msg_id") == request and message.content.get("execution_state") == "idle"


def kinds(messages: list[Message]) -> list[str]:
    """`busy`, `idle`, or the message's type."""
    return [str(message.content.get("execution_state", message.type)) for message in messages]


StartProxy = Callable[..., ProxyHarness]
"""The fixture `proxy`: it takes what ProxyHarness takes."""
