"""The sockets Jupyter's clients connect to: bound by the proxy for its whole life, read and replied on.

As ipykernel binds them: ROUTER for shell, control and stdin, XPUB for iopub, an echo for the heartbeat.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import zmq

from bitfusion_kernel.protocol.connection_file import CannotListen, ConnectionInfo
from bitfusion_kernel.protocol.wire import InvalidMessage, Message, Wire
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    Context = zmq.Context[zmq.Socket[bytes]]

Json = dict[str, Any]

BIND_LIMIT = 2.0
"""Seconds for all addresses to become free."""

BIND_PAUSE = 0.05
"""Seconds between tries."""


class ClientSockets:
    """Bound from the connection file.

    Jupyter has looked for free ports and closed them again. A connection of another program may get one
    meanwhile, and goes again: so binding is tried for `BIND_LIMIT` seconds.

    The heartbeat runs in a thread and, by `heartbeat_context`, on an I/O thread of its own: it answers
    whatever the rest of the proxy is doing.

    Raises:
        CannotListen: An address stays taken, or is none of this machine's.
    """

    def __init__(self, context: Context, heartbeat_context: Context, info: ConnectionInfo) -> None:
        self._info = info
        self._deadline = time.monotonic() + BIND_LIMIT
        self.shell = self._bind(context, zmq.ROUTER, "shell")
        self.control = self._bind(context, zmq.ROUTER, "control")
        self.stdin = self._bind(context, zmq.ROUTER, "stdin")
        self.iopub = self._bind(context, zmq.XPUB, "iopub")
        heartbeat = self._bind(heartbeat_context, zmq.ROUTER, "hb")
        threading.Thread(target=_echo, args=(heartbeat,), name="heartbeat", daemon=True).start()

    def close(self) -> None:
        """Close the channels of requests; what has been sent still leaves. iopub is the publisher's."""
        for socket in (self.shell, self.control, self.stdin):
            socket.close(linger=500)

    def _bind(self, context: Context, kind: int, channel: str) -> zmq.Socket[bytes]:
        socket = context.socket(kind)
        socket.linger = 1000
        if self._info.curve_secretkey:
            socket.curve_secretkey = self._info.curve_secretkey
            socket.curve_publickey = self._info.curve_publickey
            socket.curve_server = True
        if kind == zmq.ROUTER:
            # A client that reconnects under its identity takes over its old connection.
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        else:
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)  # each new subscriber is reported, and welcomed
        self._listen(socket, channel)
        return socket

    def _listen(self, socket: zmq.Socket[bytes], channel: str) -> None:
        address = self._info.address(channel)
        while True:
            try:
                socket.bind(address)
                return
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    why = os.strerror(error.errno or 0)
                    text = f"cannot listen on {address}, the kernel's {channel} channel: {why}"
                    raise CannotListen(text) from None
            if time.monotonic() > self._deadline:
                raise CannotListen(
                    f"port {self._info.port(channel)} of {self._info.ip}, the kernel's {channel} channel, is "
                    "taken by another program; shut the kernel down and start it anew: Jupyter then chooses "
                    "other ports (a restart may keep them)"
                )
            time.sleep(BIND_PAUSE)


def _echo(heartbeat: zmq.Socket[bytes]) -> None:
    try:
        zmq.proxy(heartbeat, heartbeat)
    except zmq.ZMQError:
        heartbeat.close()


class ClientChannel:
    """Shell, control or stdin towards Jupyter's clients: their messages, and replies to them."""

    def __init__(self, socket: zmq.Socket[bytes], wire: Wire, publisher: Publisher) -> None:
        self.socket = socket
        """For the event loop."""
        self._wire = wire
        self._publisher = publisher

    def receive(self) -> Iterator[Message]:
        """All messages that have arrived; those with a wrong signature are passed over."""
        for frames in self.receive_frames():
            message = self.read(frames)
            if message is not None:
                yield message

    def receive_frames(self) -> Iterator[list[bytes]]:
        """All messages that have arrived, unread and unchecked."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield frames

    def read(self, frames: list[bytes]) -> Message | None:
        """The message, or None if it is none or its signature is wrong."""
        try:
            return self._wire.read(frames)
        except InvalidMessage:
            return None

    def send(self, frames: list[bytes]) -> None:
        """Relay a message of the kernel."""
        self.socket.send_multipart(frames)

    def reply(self, request: Message, content: Json, metadata: Json | None = None) -> None:
        """The reply to a request that came on this channel."""
        self.send(
            self._wire.build(
                _reply_type(request),
                content,
                parent=request.header,
                metadata=metadata,
                identities=request.identities,
            )
        )

    def answer(self, request: Message, content: Json, *, publish_reply: bool = False) -> None:
        """A whole exchange: `busy`, the reply, `idle`. `publish_reply`: the reply is for all clients, too."""
        self._publisher.status("busy", request.header)
        self.reply(request, content)
        if publish_reply:
            self._publisher.publish(_reply_type(request), content, request.header)
        self._publisher.status("idle", request.header)

    def pass_over(self, message: Message) -> None:
        """A message that has no reply, and to which nothing has to be done: `busy` and `idle`.

        A comm that is opened is closed, as by a kernel that does not know its target.
        """
        self._publisher.status("busy", message.header)
        if message.type == "comm_open":
            content: Json = {"comm_id": message.content.get("comm_id"), "data": {}}
            self._publisher.publish("comm_close", content, message.header)
        self._publisher.status("idle", message.header)


def _reply_type(request: Message) -> str:
    return request.type.rsplit("_", 1)[0] + "_reply"
