"""The link to the kernel: joined once the kernel has started, then relays requests, replies and output.

Requests may be sent only when the kernel answers on control *and* its output has been joined: before that the
first output would be lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import zmq

from bitfusion_kernel.protocol.wire import InvalidMessage, Wire, read_unchecked
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    from bitfusion_kernel.protocol.connection_file import ConnectionInfo
    from bitfusion_kernel.proxy.kernel.kernel_sockets import KernelSockets

Frames = list[bytes]
FromKernel = Callable[[Iterator[Frames]], None]

_PROBE_TIMER = "probe"


class KernelLink:
    """The proxy has one; it is opened for each kernel that is launched, and closed when that has gone."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        loop: EventLoop,
        wire: Wire,
        client_iopub: zmq.Socket[bytes],
        publisher: Publisher,
    ) -> None:
        self._context = context
        self._loop = loop
        self._wire = wire
        self._client_iopub = client_iopub
        self._publisher = publisher
        self._receivers: dict[str, FromKernel] = {}
        self._opened: KernelSockets | None = None
        self.relays_output = False
        """Whether the clients' iopub belongs to the output relay."""
        self.inbox_full = False
        """Whether the kernel's shell takes nothing more for now."""

    @property
    def _sockets(self) -> KernelSockets:
        assert self._opened is not None, "the link is not open"
        return self._opened

    def deliver_to(self, *, shell: FromKernel, control: FromKernel, stdin: FromKernel) -> None:
        """Set who gets what the kernel sends. `shell` is also called when the inbox has room again."""
        self._receivers = {"shell": shell, "control": control, "stdin": stdin}

    # -- joining ---------------------------------------------------------------------------------

    def open(self, connection: ConnectionInfo, on_joined: Callable[[], None]) -> None:
        """Join the kernel that listens on `connection`, or soon will.

        `on_joined` is called once, when the kernel answers on control and its output has been joined.
        """
        from bitfusion_kernel.proxy.kernel.kernel_sockets import PROBE_EVERY, KernelSockets

        sockets = self._opened = KernelSockets(self._context, connection, self._wire)

        def look() -> bool:
            joined = sockets.join(self._publisher.relay)
            if joined:
                self._loop.cancel_timer(_PROBE_TIMER)
                self._loop.off(sockets.control)
                self._loop.off(sockets.iopub)
                on_joined()
            return joined

        def probe() -> None:
            if not look():
                sockets.probe()
                self._loop.set_timer(_PROBE_TIMER, time.monotonic() + PROBE_EVERY, probe)

        self._loop.on(sockets.control, look)
        self._loop.on(sockets.iopub, look)
        probe()

    def start_relaying(self, announced: str | None = None) -> None:
        """From now on output is relayed, and what comes on the other channels is delivered.

        Args:
            announced: Id of a cell for which the proxy has said `busy`. The kernel says it again: clients
                that expect it once must not see that. Until then output moves in Python, then in C.
        """
        sockets = self._sockets
        self._loop.on(sockets.shell, self._on_shell)
        self._loop.on(sockets.control, lambda: self._receivers["control"](self.control_replies()))
        self._loop.on(sockets.stdin, lambda: self._receivers["stdin"](_received(sockets.stdin)))
        if announced is None:
            self._relay_output()
        else:
            self._loop.on(sockets.iopub, partial(self._withhold_busy, announced))

    def _withhold_busy(self, cell: str) -> None:
        for frames in _received(self._sockets.iopub):
            try:
                message = self._wire.read(frames)
            except InvalidMessage:
                continue
            begins = message.parent_header.get("msg_id") == cell
            if not begins or message.content.get("execution_state") != "busy":
                self._publisher.relay(frames)
            if begins:
                self._loop.off(self._sockets.iopub)
                self._relay_output()
                return

    def _relay_output(self) -> None:
        from bitfusion_kernel.proxy.kernel.output_relay import OutputRelay

        self._loop.off(self._client_iopub)
        inlet = OutputRelay(self._context, self._client_iopub, self._sockets.iopub).inlet
        self._publisher.move_to(inlet)
        self._loop.on(inlet, self._publisher.welcome_subscriber)
        self.relays_output = True

    def _on_shell(self) -> None:
        if self.inbox_full:
            self.inbox_full = False
            self._loop.on(self._sockets.shell, self._on_shell)
        self._receivers["shell"](self.shell_replies())

    # -- to the kernel ---------------------------------------------------------------------------

    def send_shell(self, frames: Frames) -> bool:
        """False if the kernel's inbox is full; `shell` of `deliver_to` is called when it has room again."""
        try:
            self._sockets.shell.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            if not self.inbox_full:
                self.inbox_full = True
                self._loop.on(self._sockets.shell, self._on_shell, writable=True)
            return False
        return True

    def send_control(self, frames: Frames) -> None:
        """Control is never that full; a kernel that reads none of it loses what comes then."""
        _send(self._sockets.control, frames)

    def send_stdin(self, frames: Frames) -> None:
        """An answer to `input()`."""
        _send(self._sockets.stdin, frames)

    def ask(self, message_type: str) -> str:
        """Send a request of the proxy's own on control; its id. The reply bears no client's identity."""
        frames = self._wire.build(message_type, {})
        self.send_control(frames)
        return read_unchecked(frames).id

    # -- from the kernel -------------------------------------------------------------------------

    def shell_replies(self) -> Iterator[Frames]:
        """Replies on shell that have arrived, also those of a kernel that has died since."""
        return _received(self._sockets.shell)

    def control_replies(self) -> Iterator[Frames]:
        """The same on control."""
        return _received(self._sockets.control)

    # -- its end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the sockets; the output relay closes its own when the context ends."""
        sockets, self._opened = self._opened, None
        if sockets is None:
            return
        self._loop.cancel_timer(_PROBE_TIMER)
        self.inbox_full = False
        mine = [sockets.shell, sockets.control, sockets.stdin]
        if not self.relays_output:
            mine.append(sockets.iopub)
        for socket in mine:
            self._loop.off(socket)
            socket.close(linger=0)


def _send(socket: zmq.Socket[bytes], frames: Frames) -> None:
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return


def _received(socket: zmq.Socket[bytes]) -> Iterator[Frames]:
    while True:
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        yield frames
