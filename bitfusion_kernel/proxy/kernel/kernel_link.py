"""The link to the kernel: joined once the kernel has started, then relays requests, replies and output.

Requests may be sent only when the kernel answers on control *and* its output has been joined: before that the
first output would be lost. What the proxy itself has to ask for it asks before that, too: of a request that
is not its own a client must see nothing, least of all an `idle` while a cell runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import zmq

from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.protocol.wire import InvalidMessage, Wire, is_type
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    from bitfusion_kernel.protocol.connection_file import ConnectionInfo
    from bitfusion_kernel.proxy.kernel.kernel_sockets import KernelSockets
    from bitfusion_kernel.proxy.kernel.output_relay import OutputRelay

Frames = list[bytes]
FromKernel = Callable[[Iterator[Frames]], None]

SUBSHELLS_LIMIT = 5.0
"""Seconds a kernel has to create the subshells that clients have; then cells are sent without them."""

AT_ONCE = 100
"""Messages of output that are relayed in Python before the other sockets get their turn."""

_PROBE_TIMER = "probe"

_OUTPUT = (b"stream", b"display_data", b"update_display_data", b"execute_result", b"error")


class KernelLink:
    """The proxy has one; it is opened for each kernel that is launched, and closed when that has gone."""

    def __init__(
        self,
        loop: EventLoop,
        wire: Wire,
        client_iopub: zmq.Socket[bytes],
        publisher: Publisher,
        subshells: EarlySubshells,
    ) -> None:
        self._loop = loop
        self._wire = wire
        self._client_iopub = client_iopub
        self._publisher = publisher
        self._subshells = subshells
        self._receivers: dict[str, FromKernel] = {}
        self._on_reconnected: Callable[[], None] = lambda: None
        self._opened: KernelSockets | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._relay: OutputRelay | None = None
        self._listener: zmq.Socket[bytes] | None = None
        self._looks_idle = False
        self.inbox_full = False
        """Whether the kernel's shell takes nothing more for now."""

    @property
    def relays_output(self) -> bool:
        """Whether the clients' iopub belongs to the output relay."""
        return self._relay is not None

    @property
    def _sockets(self) -> KernelSockets:
        assert self._opened is not None, "the link is not open"
        return self._opened

    def deliver_to(
        self,
        *,
        shell: FromKernel,
        control: FromKernel,
        stdin: FromKernel,
        reconnected: Callable[[], None],
    ) -> None:
        """Set who gets what the kernel sends. `shell` is also called when the inbox has room again.

        `reconnected` is called when the kernel has closed its sockets and opened them again.
        """
        self._receivers = {"shell": shell, "control": control, "stdin": stdin}
        self._on_reconnected = reconnected

    # -- joining ---------------------------------------------------------------------------------

    def open(self, connection: ConnectionInfo, on_joined: Callable[[], None]) -> None:
        """Join the kernel that listens on `connection`, or soon will.

        `on_joined` is called once, when the kernel answers on control, its output has been joined and it has
        the subshells that clients have.
        """
        from bitfusion_kernel.proxy.kernel.kernel_sockets import PROBE_EVERY, KernelSockets

        self._context = zmq.Context()
        sockets = self._opened = KernelSockets(self._context, connection, self._wire)
        sockets.on_reply = self._subshells.on_reply
        self._subshells.begin()
        deadline = float("inf")

        def look() -> bool:
            nonlocal deadline
            joined, now = sockets.join(self._publisher.relay), time.monotonic()
            if joined and (requests := self._subshells.requests()):
                sockets.ask(requests)
                deadline, joined = min(deadline, now + SUBSHELLS_LIMIT), False
            if joined or now > deadline:
                joined = True
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
                that expect it once must not see that, unless another request, which came before the cell,
                has made the kernel look idle. Until then output moves in Python, then in C.
        """
        sockets = self._sockets
        self._loop.on(sockets.shell, self._on_shell)
        self._loop.on(sockets.connections, self._on_connections)
        self._loop.on(sockets.control, lambda: self._receivers["control"](self.control_replies()))
        self._loop.on(sockets.stdin, lambda: self._receivers["stdin"](self._received(sockets.stdin)))
        self._looks_idle = False
        if announced is None:
            self._relay_output()
        else:
            self._loop.on(sockets.iopub, partial(self._withhold_busy, announced))

    def _withhold_busy(self, cell: str) -> None:
        for frames in self._received(self._sockets.iopub):
            try:
                message = self._wire.read(frames)
            except InvalidMessage:
                continue
            begins = message.parent_header.get("msg_id") == cell
            state = message.content.get("execution_state")
            if not begins or state != "busy" or self._looks_idle:
                self._publisher.relay(frames)
                self._looks_idle = state == "idle"
            if begins:
                self._loop.off(self._sockets.iopub)
                self._relay_output()
                return

    def _relay_output(self) -> None:
        if self._subshells.renamed:
            self._loop.on(self._sockets.iopub, self._relay_translated)
            return
        from bitfusion_kernel.proxy.kernel.output_relay import OutputRelay

        assert self._context is not None
        self._loop.off(self._client_iopub)
        self._relay = OutputRelay(self._context, self._client_iopub, self._sockets.iopub)
        self._publisher.move_to(self._relay.inlet)
        self._loop.on(self._relay.inlet, self._publisher.welcome_subscriber)

    def hear_output(self, on_output: Callable[[], None] | None) -> None:
        """Have `on_output` called when the kernel prints or shows something; None: no longer.

        The relay is in C and tells nothing, so this is a socket of its own, for a kernel that runs no cell.
        """
        if on_output is None or self._opened is None or self._context is None:
            if self._listener is not None:
                self._loop.off(self._listener)
                self._listener.close(linger=0)
                self._listener = None
            return
        if self._listener is None:
            self._listener = self._context.socket(zmq.SUB)
            self._listener.subscribe(b"")
            self._listener.connect(self._opened.output_address)
        listener = self._listener

        def hear() -> None:
            shown = [is_output(frames) for frames in _received(listener)]
            if any(shown):
                on_output()

        self._loop.on(listener, hear)

    def _on_connections(self) -> None:
        if self._sockets.reconnected():
            self._on_reconnected()

    def _relay_translated(self) -> None:
        """In Python, since the kernel's ids of subshells are not those that its clients know."""
        for frames in islice(self._received(self._sockets.iopub), AT_ONCE):
            self._publisher.relay(frames)

    def _on_shell(self) -> None:
        if self.inbox_full:
            self.inbox_full = False
            self._loop.on(self._sockets.shell, self._on_shell)
        self._receivers["shell"](self.shell_replies())

    # -- to the kernel ---------------------------------------------------------------------------

    def send_shell(self, frames: Frames) -> bool:
        """False if the kernel's inbox is full; `shell` of `deliver_to` is called when it has room again."""
        try:
            self._sockets.shell.send_multipart(self._subshells.to_kernel(frames), zmq.NOBLOCK)
        except zmq.Again:
            if not self.inbox_full:
                self.inbox_full = True
                self._loop.on(self._sockets.shell, self._on_shell, writable=True)
            return False
        return True

    def send_control(self, frames: Frames) -> None:
        """Control is never that full; a kernel that reads none of it loses what comes then."""
        _send(self._sockets.control, self._subshells.to_kernel(frames))

    def send_stdin(self, frames: Frames) -> None:
        """An answer to `input()`."""
        _send(self._sockets.stdin, frames)

    def ask(self, message_type: str, *, behind_cells: bool = False) -> str:
        """Send a request of the proxy's own on control; its id. The reply bears no client's identity.

        `behind_cells`: on shell, where it is answered when all is over that cells of the main shell do, also
        their `idle` behind their reply; on control where the inbox is full.
        """
        frames = self._wire.build(message_type, {})
        if not (behind_cells and self.send_shell(frames)):
            self.send_control(frames)
        return self._wire.read(frames).id

    # -- from the kernel -------------------------------------------------------------------------

    def shell_replies(self) -> Iterator[Frames]:
        """Replies on shell that have arrived, also those of a kernel that has died since."""
        return self._received(self._sockets.shell)

    def control_replies(self) -> Iterator[Frames]:
        """The same on control."""
        return self._received(self._sockets.control)

    def _received(self, socket: zmq.Socket[bytes]) -> Iterator[Frames]:
        frames = _received(socket)
        return map(self._subshells.to_client, frames) if self._subshells.renamed else frames

    # -- its end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the sockets; what is published from now on leaves by the clients' own again."""
        sockets, self._opened = self._opened, None
        if sockets is None or self._context is None:
            return
        self.hear_output(None)
        self._loop.cancel_timer(_PROBE_TIMER)
        self.inbox_full = False
        mine = [sockets.shell, sockets.control, sockets.stdin, sockets.connections]
        if self._relay is None:
            mine.append(sockets.iopub)
        for socket in mine:
            self._loop.off(socket)
            socket.close(linger=0)
        if self._relay is None:
            self._context.term()
            return
        self._loop.off(self._relay.inlet)
        self._relay.stop()
        self._relay = None
        self._publisher.move_to(self._client_iopub)
        self._loop.on(self._client_iopub, self._publisher.welcome_subscriber)


def is_output(frames: Frames) -> bool:
    """Whether it is what a person sees: text, a display, a result or an error."""
    return any(is_type(frames, kind) for kind in _OUTPUT)


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
