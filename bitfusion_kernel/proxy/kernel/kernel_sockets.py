"""The sockets to the kernel, and joining it: probes until it answers and its output is received."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import zmq

from bitfusion_kernel.protocol.connection_file import ConnectionInfo
from bitfusion_kernel.protocol.wire import InvalidMessage, Message, Wire

PROBE_EVERY = 0.02
"""Seconds between looks at a kernel that has not answered on both channels yet."""

PROBE_LIMIT = 0.4
"""Seconds without an answer until the kernel is probed again: longer than it takes to start on an idle
machine; a second probe does no harm."""

GREETING_LIMIT = 0.05
"""Seconds to wait for the kernel's `status: starting` after its first answer, to keep it from the clients:
ipykernel answers control a moment before it publishes that. A kernel that never does costs this much."""

OUTPUT_BACKLOG = 400
"""Messages the proxy takes from the kernel ahead of the clients. The clients' socket drops what exceeds its
own 1000 when a client is behind, and a backlog of the default 1000, sent at once after a pause, did exceed
them. So the rest waits in the kernel, as it does without a proxy."""

RECONNECT_MS = 5


class KernelSockets:
    """DEALERs to the kernel's shell, control and stdin, and an XSUB to its iopub.

    All DEALERs share one identity: the kernel sends `input_request` on stdin to the identity that the
    cell had on shell.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], info: ConnectionInfo, wire: Wire) -> None:
        self._wire = wire
        identity = os.urandom(8).hex().encode()
        self.shell = self._dealer(context, info.address("shell"), identity)
        self.connections = self.shell.get_monitor_socket(zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
        """Tells of the connections of `shell`: see `reconnected`."""
        self._connection_lost = False
        self.control = self._dealer(context, info.address("control"), identity)
        self.stdin = self._dealer(context, info.address("stdin"), identity)
        self.output_address = info.address("iopub")
        self.iopub = context.socket(zmq.XSUB)
        self.iopub.linger = 0
        self.iopub.reconnect_ivl = RECONNECT_MS
        self.iopub.rcvhwm = OUTPUT_BACKLOG
        self.iopub.connect(info.address("iopub"))
        self.iopub.send(b"\x01")  # everything, for as long as the proxy lives
        self._probe_id: str | None = None
        self._asked_at = 0.0
        self._answered_at: float | None = None
        self._idle_seen = False
        self._said_starting = False
        self.on_reply: Callable[[Message], None] = lambda reply: None
        """Called with each reply on control until the kernel is joined: all are the proxy's own."""

    @staticmethod
    def _dealer(context: zmq.Context[zmq.Socket[bytes]], address: str, identity: bytes) -> zmq.Socket[bytes]:
        socket = context.socket(zmq.DEALER)
        socket.identity = identity
        socket.linger = 0
        socket.reconnect_ivl = RECONNECT_MS
        socket.connect(address)
        return socket

    def probe(self) -> None:
        """Ask the kernel something harmless on control; it is joined with the answer and its `idle` on iopub.

        One probe at a time. It is repeated when it was answered but its `idle` was not seen, because iopub
        had not been joined yet; or when there is no answer for a while, because ipykernel before 7.4 loses
        what comes on control while it starts.
        """
        now = time.monotonic()
        missed = self._answered_at is not None and not self._idle_seen
        lost = self._answered_at is None and now - self._asked_at > PROBE_LIMIT
        if self._probe_id is None or missed or lost:
            self._asked_at = now
            frames = self._wire.build("kernel_info_request", {})
            self._probe_id = self._wire.read(frames).id
            self._answered_at, self._idle_seen = None, False
            self.control.send_multipart(frames, zmq.NOBLOCK)

    def ask(self, requests: list[list[bytes]]) -> None:
        """Send the proxy's own requests to a kernel that has been joined, and join it again.

        It answers control in order: when it answers the new probe, these are done, and what it has said of
        them on iopub is kept from the clients.
        """
        for frames in requests:
            self.control.send_multipart(frames, zmq.NOBLOCK)
        self._probe_id, self._said_starting = None, True
        self.probe()

    def join(self, on_output: Callable[[list[bytes]], None]) -> bool:
        """Read what has arrived on control and iopub; whether the kernel has been joined.

        What is neither a greeting nor an answer to a probe is output: it goes to `on_output`.
        """
        if self.control.poll(0):
            self._read_control()
        while not self._joined and self.iopub.poll(0):
            frames = self.iopub.recv_multipart(zmq.NOBLOCK)
            if self._is_output(frames):
                on_output(frames)
        return self._joined

    @property
    def _joined(self) -> bool:
        if self._answered_at is None or not self._idle_seen:
            return False
        return self._said_starting or time.monotonic() - self._answered_at > GREETING_LIMIT

    def reconnected(self) -> bool:
        """Read what `connections` tells; whether a connection that was lost is there again."""
        again = False
        while self.connections.poll(0):
            event = int.from_bytes(self.connections.recv_multipart(zmq.NOBLOCK)[0][:2], sys.byteorder)
            again = again or (event == zmq.EVENT_CONNECTED and self._connection_lost)
            self._connection_lost = event == zmq.EVENT_DISCONNECTED
        return again

    def _read_control(self) -> None:
        try:
            reply = self._wire.read(self.control.recv_multipart(zmq.NOBLOCK))
        except InvalidMessage:
            return
        self.on_reply(reply)
        if reply.parent_header.get("msg_id") == self._probe_id:
            self._answered_at = time.monotonic()

    def _is_output(self, frames: list[bytes]) -> bool:
        try:
            message: Message = self._wire.read(frames)
        except InvalidMessage:
            return False
        state = message.content.get("execution_state")
        if message.parent_header.get("session") == self._wire.session:
            if message.parent_header.get("msg_id") == self._probe_id and state == "idle":
                self._idle_seen = True
            return False
        if message.type == "status" and state == "starting":
            self._said_starting = True  # the proxy has published that already
            return False
        return message.type != "iopub_welcome"
