"""A kernel started through jupyter_client, and clients that keep every message they see."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbformat.v4 import output_from_msg

Message = dict[str, Any]

OUTPUT_TYPES = ("stream", "display_data", "execute_result", "error")


class Cell:
    """One execute request and everything that came back for it."""

    def __init__(self, code: str, msg_id: str) -> None:
        self.code = code
        self.msg_id = msg_id
        self.messages: list[Message] = []  # iopub, in order
        self.reply: Message | None = None
        self.seen_at: list[float] = []  # time.monotonic() of each of `messages`

    @property
    def done(self) -> bool:
        return self.reply is not None and self.idle

    @property
    def idle(self) -> bool:
        return any(
            m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" for m in self.messages
        )

    @property
    def status(self) -> str:
        assert self.reply is not None, f"no reply to {self.code!r}"
        return str(self.reply["content"]["status"])

    @property
    def count(self) -> int | None:
        assert self.reply is not None
        return self.reply["content"].get("execution_count")

    @property
    def kinds(self) -> list[str]:
        """The message types in order, statuses by their state."""
        return [
            m["content"]["execution_state"] if m["msg_type"] == "status" else m["msg_type"]
            for m in self.messages
        ]

    def of(self, *kinds: str) -> list[Message]:
        return [m for m in self.messages if m["msg_type"] in kinds]

    def stream(self, name: str = "stdout") -> str:
        return "".join(m["content"]["text"] for m in self.of("stream") if m["content"]["name"] == name)

    @property
    def result(self) -> str | None:
        results = self.of("execute_result")
        return results[-1]["content"]["data"]["text/plain"] if results else None

    @property
    def error(self) -> Message:
        errors = self.of("error")
        assert errors, f"{self.code!r} gave no error but {self.kinds}"
        return errors[-1]["content"]

    @property
    def error_text(self) -> str:
        error = self.error
        return "\n".join([error["ename"], error["evalue"], *error["traceback"]])

    def saved_outputs(self) -> list[Any]:
        """What a frontend would save for this cell: displays updated in place, cleared outputs gone."""
        outputs: list[Any] = []
        places: dict[str, list[int]] = {}
        clear_before_next = False
        for message in self.messages:
            kind, content = message["msg_type"], message["content"]
            if kind == "clear_output":
                if content.get("wait"):
                    clear_before_next = True
                else:
                    outputs, places, clear_before_next = [], {}, False
            elif kind in OUTPUT_TYPES:
                if clear_before_next:
                    outputs, places, clear_before_next = [], {}, False
                display_id = (content.get("transient") or {}).get("display_id")
                if kind == "display_data" and display_id is not None:
                    places.setdefault(display_id, []).append(len(outputs))
                outputs.append(output_from_msg(message))
            elif kind == "update_display_data":
                display_id = content["transient"]["display_id"]
                for place in places.get(display_id, []):
                    outputs[place]["data"] = content["data"]
        return outputs


class Client:
    """One frontend: sends requests, keeps all answers, never drops a message."""

    def __init__(self, channels: BlockingKernelClient) -> None:
        self.channels = channels
        self.iopub: list[Message] = []
        self.replies: dict[str, Message] = {}
        self.input_requests: list[Message] = []
        self._cells: dict[str, Cell] = {}
        self._poller = zmq.Poller()
        self._sockets: dict[Any, Callable[[Message], None]] = {}
        for name, keep in (
            ("shell", self._keep_reply),
            ("control", self._keep_reply),
            ("stdin", self.input_requests.append),
            ("iopub", self._keep_iopub),
        ):
            socket = getattr(channels, f"{name}_channel").socket
            self._sockets[socket] = keep
            self._poller.register(socket, zmq.POLLIN)

    @property
    def session(self) -> Any:
        return self.channels.session

    def send(self, code: str, subshell_id: str | None = None, **options: Any) -> Cell:
        """Send an execute request and do not wait."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        } | options
        message = self.session.msg("execute_request", content)
        if subshell_id is not None:
            message["header"]["subshell_id"] = subshell_id
        cell = Cell(code, message["header"]["msg_id"])
        self._cells[cell.msg_id] = cell
        self.channels.shell_channel.send(message)
        return cell

    def run(self, code: str, timeout: float = 30, **options: Any) -> Cell:
        cell = self.send(code, **options)
        return self.finish(cell, timeout)

    def finish(self, cell: Cell, timeout: float = 30) -> Cell:
        self.pump(lambda: cell.done, timeout, f"the end of cell {cell.code!r}", lambda: cell.kinds)
        return cell

    def finish_all(self, *cells: Cell, timeout: float = 30) -> None:
        for cell in cells:
            self.finish(cell, timeout)

    def ask(self, msg_type: str, content: Message | None = None, channel: str = "shell") -> str:
        """Send any request without waiting; returns its message id."""
        message = self.session.msg(msg_type, content or {})
        getattr(self.channels, f"{channel}_channel").send(message)
        return str(message["header"]["msg_id"])

    def request(
        self, msg_type: str, content: Message | None = None, channel: str = "shell", timeout: float = 20
    ) -> Message:
        """Send any request and return the content of its reply."""
        return self.reply_to(self.ask(msg_type, content, channel), timeout, msg_type)

    def reply_to(self, msg_id: str, timeout: float = 20, what: str = "request") -> Message:
        self.pump(lambda: msg_id in self.replies, timeout, f"the reply to {what}")
        content: Message = self.replies[msg_id]["content"]
        return content

    def answer(self, text: str) -> None:
        """Answer the newest input request."""
        self.channels.input(text)

    def pump(
        self,
        until: Callable[[], Any],
        timeout: float,
        what: str,
        seen: Callable[[], Any] = lambda: "",
    ) -> None:
        deadline = time.monotonic() + timeout
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{what} did not come within {timeout} s {seen()}")
            for socket, _ in self._poller.poll(min(left, 0.2) * 1000):
                _, message = self.session.recv(socket, mode=zmq.NOBLOCK)
                if message is not None:
                    self._sockets[socket](message)

    def settle(self, seconds: float) -> None:
        """Read for so long, to be sure that nothing more comes."""
        deadline = time.monotonic() + seconds
        self.pump(lambda: time.monotonic() > deadline, seconds + 5, "time")

    def messages_for(self, msg_id: str) -> list[Message]:
        return [m for m in self.iopub if m["parent_header"].get("msg_id") == msg_id]

    def _keep_reply(self, message: Message) -> None:
        msg_id = message["parent_header"].get("msg_id", "")
        self.replies[msg_id] = message
        if msg_id in self._cells:
            self._cells[msg_id].reply = message

    def _keep_iopub(self, message: Message) -> None:
        self.iopub.append(message)
        cell = self._cells.get(message["parent_header"].get("msg_id", ""))
        if cell is not None:
            cell.messages.append(message)
            cell.seen_at.append(time.monotonic())

    def watch(self, cell: Cell) -> Cell:
        """Follow a cell that another client sent: its messages as this client sees them."""
        copy = Cell(cell.code, cell.msg_id)
        copy.reply = {"content": {"status": "not for this client"}}
        for message in self.messages_for(cell.msg_id):
            copy.messages.append(message)
            copy.seen_at.append(time.monotonic())
        self._cells[cell.msg_id] = copy
        return copy

    def close(self) -> None:
        self.channels.stop_channels()


class LiveKernel:
    """A kernel under a plain KernelManager, as nbclient and the server's manager start it."""

    def __init__(self, name: str, options: dict[str, Any] | None = None, **start: Any) -> None:
        self.name = name
        self.manager = KernelManager(kernel_name=name, **(options or {}))
        self.clients: list[Client] = []
        # With pytest's variable ipykernel would not watch the file descriptors that child processes write to.
        start["env"] = without_pytest(start.get("env") or os.environ)
        self.manager.start_kernel(**start)

    @property
    def pid(self) -> int:
        provisioner = self.manager.provisioner
        assert provisioner is not None
        return int(provisioner.pid)  # type: ignore[attr-defined]  # only LocalProvisioner has it

    def connect(self, ready: bool = True) -> Client:
        """A new client; `ready` waits for the kernel as notebook tools do.

        The first one is the manager's own; others read the connection file, since the manager's clients
        share one session and so one identity on the wire.
        """
        if self.clients:
            channels = BlockingKernelClient(connection_file=self.manager.connection_file)
            channels.load_connection_file()
        else:
            channels = self.manager.client()
        channels.start_channels()
        client = Client(channels)
        self.clients.append(client)
        if ready:
            channels.wait_for_ready(timeout=30)
        return client

    @property
    def client(self) -> Client:
        return self.clients[0] if self.clients else self.connect()

    def run(self, code: str, timeout: float = 30, **options: Any) -> Cell:
        return self.client.run(code, timeout, **options)

    def interrupt(self) -> None:
        self.manager.interrupt_kernel()

    def restart(self, now: bool = False) -> None:
        self.manager.restart_kernel(now=now)

    def stop(self, now: bool = False) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()
        if self.manager.has_kernel:
            self.manager.shutdown_kernel(now=now)
        self.manager.cleanup_connection_file()

    def wait_for_end(self, timeout: float) -> float:
        """Seconds until the kernel's own process has ended."""
        begin = time.monotonic()
        while self.manager.is_alive():
            if time.monotonic() - begin > timeout:
                raise AssertionError(f"the kernel's process {self.pid} still lives after {timeout} s")
            time.sleep(0.02)
        return time.monotonic() - begin


def without_pytest(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment a user's own tools would have."""
    return {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}


def poll(condition: Callable[[], Any], timeout: float, step: float = 0.02) -> Any:
    """The first true value of `condition`, or its last value after `timeout` seconds."""
    for _ in ticks(timeout, step):
        value = condition()
        if value:
            return value
    return condition()


def ticks(timeout: float, step: float) -> Iterator[None]:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        yield
        time.sleep(step)
