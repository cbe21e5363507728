"""A Jupyter client that keeps every message it sees, and the cells it sent with what came back for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from nbformat.v4 import output_from_msg

from tests.support.machine import scaled
from tests.support.waiting import Deadline

Message = dict[str, Any]

OUTPUT_TYPES = ("stream", "display_data", "execute_result", "error")


def channels_of(connection_file: str) -> BlockingKernelClient:
    """Started channels to a kernel of another process, for a client that waits until it is ready.

    Such a client knows the kernel by its heartbeat alone, and calls one dead that has not bound its socket
    within `time_to_dead` of 1 s. A busy machine does not always start a kernel in that time, whichever it is.
    """
    channels = BlockingKernelClient(connection_file=connection_file)
    channels.load_connection_file()
    channels.hb_channel.time_to_dead = scaled(1)
    channels.start_channels()
    return channels


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
        count: int | None = self.reply["content"].get("execution_count")
        return count

    @property
    def kinds(self) -> list[str]:
        """The message types in order, statuses by their state."""
        return [
            m["content"]["execution_state"] if m["msg_type"] == "status" else m["msg_type"]
            for m in self.messages
        ]

    @property
    def seen(self) -> str:
        """What has come so far, for the failure of a test: the last types, the last display."""
        displays = self.of("display_data", "update_display_data")
        last = displays[-1]["content"]["data"].get("text/plain", "") if displays else ""
        return f"{len(self.messages)} messages, at last {self.kinds[-5:]} {last}"

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
        content: Message = errors[-1]["content"]
        return content

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
    """One Jupyter client: sends requests, keeps all answers, never drops a message."""

    def __init__(self, channels: BlockingKernelClient) -> None:
        self.channels = channels
        self.header: dict[str, Any] = {}
        """Fields that every header of this client has besides jupyter_client's; see `like_jupyterlab`."""
        self.passes_over_damage = False
        """Whether a message with a wrong signature is passed over, and fails no test.

        An interrupt of ipykernel that sends a reply cuts it off, and the next one runs into it.
        """
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

    def like_jupyterlab(self) -> None:
        """Send headers as JupyterLab 4.4 and later: its createMessage writes null for the main shell."""
        self.header = {"username": "", "version": "5.2", "subshell_id": None}

    def _message(self, msg_type: str, content: Message) -> Message:
        message: Message = self.session.msg(msg_type, content)
        message["header"] |= self.header
        return message

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
        message = self._message("execute_request", content)
        if subshell_id is not None:
            message["header"]["subshell_id"] = subshell_id
        cell = Cell(code, message["header"]["msg_id"])
        self._cells[cell.msg_id] = cell
        self.channels.shell_channel.send(message)
        return cell

    def run(self, code: str, limit_s: float = 30, **options: Any) -> Cell:
        cell = self.send(code, **options)
        return self.finish(cell, limit_s)

    def finish(self, cell: Cell, limit_s: float | Deadline = 30) -> Cell:
        self.pump(lambda: cell.done, limit_s, f"the end of cell {cell.code!r}", lambda: cell.seen)
        return cell

    def finish_all(self, *cells: Cell, limit_s: float = 30) -> None:
        for cell in cells:
            self.finish(cell, limit_s)

    def ask(self, msg_type: str, content: Message | None = None, channel: str = "shell") -> str:
        """Send any request without waiting; returns its message id."""
        message = self._message(msg_type, content or {})
        getattr(self.channels, f"{channel}_channel").send(message)
        return str(message["header"]["msg_id"])

    def request(
        self, msg_type: str, content: Message | None = None, channel: str = "shell", limit_s: float = 20
    ) -> Message:
        """Send any request and return the content of its reply."""
        return self.reply_to(self.ask(msg_type, content, channel), limit_s, msg_type)

    def reply_to(self, msg_id: str, limit_s: float = 20, what: str = "request") -> Message:
        self.pump(lambda: msg_id in self.replies, limit_s, f"the reply to {what}")
        content: Message = self.replies[msg_id]["content"]
        return content

    def answer(self, text: str) -> None:
        """Answer the newest input request."""
        self.channels.input(text)

    def pump(
        self,
        until: Callable[[], Any],
        limit_s: float | Deadline,
        what: str,
        seen: Callable[[], Any] = lambda: "",
    ) -> None:
        """Read messages until a condition holds; the time limit is scaled with the machine.

        Raises:
            AssertionError: It did not hold in time; the text says `what` was waited for and what was `seen`.
        """
        deadline = limit_s if isinstance(limit_s, Deadline) else Deadline(limit_s)
        while not until():
            if deadline.passed:
                raise AssertionError(f"{what} did not come within {deadline.limit_s:.3g} s {seen()}")
            for socket, _ in self._poller.poll(min(deadline.left_ms, 200)):
                message = self._read(socket)
                if message is not None:
                    self._sockets[socket](message)

    def _read(self, socket: Any) -> Message | None:
        try:
            message: Message | None = self.session.recv(socket, mode=zmq.NOBLOCK)[1]
        except ValueError as error:
            if not (self.passes_over_damage and str(error).startswith("Invalid Signature")):
                raise
            return None
        return message

    def settle(self, seconds: float) -> None:
        """Read for so long, so that what should not come would be seen."""
        end = time.monotonic() + seconds
        self.pump(lambda: time.monotonic() > end, seconds + 5, "time")

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
