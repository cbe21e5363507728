"""A kernel's sockets without a kernel: what it receives and sends is written by the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import zmq

from bitfusion_kernel.protocol.connection_file import CHANNELS, ConnectionInfo
from bitfusion_kernel.protocol.wire import Message
from tests.kernel.proxy.parts import WIRE
from tests.support.waiting import Deadline


class FakeKernel:
    """Binds a kernel's channels on ipc sockets in a folder."""

    def __init__(self, folder: Path, inbox: int = 1000) -> None:
        fields: dict[str, Any] = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
        self.info = ConnectionInfo(fields | {"transport": "ipc", "ip": str(folder / "k"), "key": "secret"})
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.shell = self._bind(zmq.ROUTER, "shell", inbox)
        self.control = self._bind(zmq.ROUTER, "control")
        self.stdin = self._bind(zmq.ROUTER, "stdin")
        self.iopub = self._bind(zmq.XPUB, "iopub")

    def _bind(self, kind: int, channel: str, inbox: int = 1000) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.linger, socket.rcvhwm = 0, inbox
        socket.bind(self.info.address(channel))
        return socket

    def reopen_shell(self) -> None:
        """As a program does that replaces itself."""
        self.shell.close(linger=0)
        self.shell = self._bind(zmq.ROUTER, "shell")

    def publish(self, message_type: str, content: dict[str, Any], parent: Message | None = None) -> None:
        """One message on iopub."""
        header = parent.header if parent is not None else None
        self.iopub.send_multipart(WIRE.build(message_type, content, parent=header, identities=[b"topic"]))

    def request(self, channel: str = "control", limit_s: float = 5.0) -> Message:
        """The next request on a channel."""
        socket: zmq.Socket[bytes] = getattr(self, channel)
        assert socket.poll(Deadline(limit_s).left_ms), f"nothing came on {channel}"
        return WIRE.read(socket.recv_multipart())

    def reply(self, request: Message, channel: str = "control", **content: Any) -> None:
        """The reply to a request."""
        reply_type = request.type.removesuffix("_request") + "_reply"
        frames = WIRE.build(reply_type, content, parent=request.header, identities=request.identities)
        socket: zmq.Socket[bytes] = getattr(self, channel)
        socket.send_multipart(frames)

    def answer_probe(self) -> None:
        """The next request on control."""
        self.answer(self.request())

    def answer(self, request: Message, **content: Any) -> None:
        """As ipykernel answers on control: reply, and busy and idle on iopub."""
        self.publish("status", {"execution_state": "busy"}, request)
        self.reply(request, **({"status": "ok"} | content))
        self.publish("status", {"execution_state": "idle"}, request)

    def close(self) -> None:
        """Close everything."""
        self.context.destroy(linger=0)
