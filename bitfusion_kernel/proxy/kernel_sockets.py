"""The kernel's side of the proxy: joining the kernel that has started, then relaying.

Shell, control and stdin pass through the proxy's loop, because it must know which cells run and catches
`%bitfusion` cells. Output (iopub) is most of the traffic and moves to a thread in C (`zmq.proxy`).
"""

from __future__ import annotations

import os
import threading
import time

import zmq

from bitfusion_kernel.protocol.connection_file import ConnectionInfo
from bitfusion_kernel.protocol.wire import InvalidMessage, Message, Wire

INJECT_ADDRESS = "inproc://proxy-iopub"
PROBE_EVERY = 0.02
"""Seconds between questions to a kernel that has not answered on both channels yet."""

PROBE_PATIENCE = 0.4
"""Seconds a question may stay unanswered: longer than the kernel takes to start on an idle machine, and
asking twice does no harm."""

GREETING_PATIENCE = 0.05
"""Seconds, after the kernel's first answer, that its `status: starting` is waited for, to keep it from
clients: ipykernel answers control a moment before it says so. Kernels that never say it cost this much."""

OUTPUT_BACKLOG = 400
"""Messages the proxy takes from the kernel ahead of the clients. The clients' socket drops what goes beyond
its 1000 when it is behind; a full default backlog of 1000, poured out after a pause, did just that, so what
is more waits in the kernel, as it does without a proxy."""

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
        self.control = self._dealer(context, info.address("control"), identity)
        self.stdin = self._dealer(context, info.address("stdin"), identity)
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

    @staticmethod
    def _dealer(context: zmq.Context[zmq.Socket[bytes]], address: str, identity: bytes) -> zmq.Socket[bytes]:
        socket = context.socket(zmq.DEALER)
        socket.identity = identity
        socket.linger = 0
        socket.reconnect_ivl = RECONNECT_MS
        socket.connect(address)
        return socket

    def probe(self) -> None:
        """Ask the kernel something harmless on control; its answer and its `idle` are what we wait for.

        One question at a time, asked again when it was answered but its `idle` was not seen: then iopub
        had not been joined yet. Or when there was no answer for a while: ipykernel before 7.4 loses what
        comes to control while it starts.
        """
        now = time.monotonic()
        missed = self._answered_at is not None and not self._idle_seen
        lost = self._answered_at is None and now - self._asked_at > PROBE_PATIENCE
        if self._probe_id is None or missed or lost:
            self._asked_at = now
            frames = self._wire.build("kernel_info_request", {})
            self._probe_id = self._wire.read(frames).id
            self._answered_at = None
            self.control.send_multipart(frames, zmq.NOBLOCK)

    def on_control(self) -> None:
        """The answer to a probe."""
        reply = self._wire.read(self.control.recv_multipart(zmq.NOBLOCK))
        if reply.parent_header.get("msg_id") == self._probe_id:
            self._answered_at = time.monotonic()

    def on_iopub(self) -> list[bytes] | None:
        """A first message on iopub; returned if it is for the clients (not ours, not a greeting)."""
        frames = self.iopub.recv_multipart(zmq.NOBLOCK)
        try:
            message: Message = self._wire.read(frames)
        except InvalidMessage:
            return None
        state = message.content.get("execution_state")
        if message.parent_header.get("session") == self._wire.session:
            if message.parent_header.get("msg_id") == self._probe_id and state == "idle":
                self._idle_seen = True
            return None
        if message.type == "status" and state == "starting":
            self._said_starting = True  # the proxy has told the clients already
            return None
        return None if message.type == "iopub_welcome" else frames

    @property
    def ready(self) -> bool:
        """Handover may happen: before this, the first output would be lost."""
        if self._answered_at is None or not self._idle_seen:
            return False
        return self._said_starting or time.monotonic() - self._answered_at > GREETING_PATIENCE

    def close(self) -> None:
        """Close what is still ours."""
        for socket in (self.shell, self.control, self.stdin, self.iopub):
            socket.close()


class OutputRelay:
    """Moves iopub in C: proxy's XPUB ⇄ XSUB on the kernel, with an inlet for the proxy's own messages.

    The XSUB is connected to the kernel and to an inproc XPUB of ours. Subscriptions of clients travel to
    both, so the proxy still sees each new subscriber (to welcome it), and what the proxy publishes on the
    inlet leaves by the same socket as the kernel's output.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        clients: zmq.Socket[bytes],
        kernel: zmq.Socket[bytes],
    ) -> None:
        self.inlet = context.socket(zmq.XPUB)
        self.inlet.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.inlet.linger = 1000
        self.inlet.bind(INJECT_ADDRESS)
        kernel.connect(INJECT_ADDRESS)
        while self.inlet.poll(1000):  # until our own subscription has arrived, or messages would be lost
            if self.inlet.recv() == b"\x01":
                break
        self._sockets = (clients, kernel)
        threading.Thread(target=self._run, name="iopub", daemon=True).start()

    def _run(self) -> None:
        clients, kernel = self._sockets
        try:
            zmq.proxy(clients, kernel)
        except zmq.ZMQError:
            pass  # the context is being closed
        clients.close(linger=1000)
        kernel.close(linger=0)
