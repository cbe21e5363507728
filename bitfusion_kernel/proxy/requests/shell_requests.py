"""What clients send on shell: answered at once, queued, or relayed to the kernel; the kernel's replies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from bitfusion_kernel.magic.cell import MAGIC, command_lines
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.protocol.wire import DELIMITER, InvalidMessage, Message, is_type, read_unchecked
from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue, RequestsInKernel
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
from bitfusion_kernel.proxy.requests.start_up_wait import READY_REQUEST, StartUpWait

BETTER_FROM_THE_KERNEL = frozenset(("complete_request", "inspect_request", "history_request"))
"""Answered by the kernel if it is starting already: 0.2 s later, but with what it knows."""

ASKS_FOR_WIDGETS = "jupyter.widget.control"
"""The target of a comm that JupyterLab opens with each notebook. Left to the kernel it would be answered with
the first cell, and what the client then asks makes the kernel look idle while that runs."""

_LEFT_TO_KERNEL = BETTER_FROM_THE_KERNEL | {READY_REQUEST}

_MAGIC_WORD = MAGIC.encode()


class ShellRequests:
    """Serves the shell channel.

    `kernel_inbox_full` tells that the kernel takes no more for now: then shell is not read, so that Jupyter's
    inbox fills up and not the proxy's memory. `on_shutdown` serves a shutdown request, which clients sent on
    shell before protocol 5.0.
    """

    def __init__(
        self,
        channel: ClientChannel,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        offline: OfflineReplies,
        queue: RequestQueue,
        in_kernel: RequestsInKernel,
        scheduler: CellScheduler,
        start_up: StartUpWait,
        *,
        kernel_inbox_full: Callable[[], bool],
        on_shutdown: Callable[[Message], None],
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._lifecycle = lifecycle
        self._offline = offline
        self._queue = queue
        self._in_kernel = in_kernel
        self._scheduler = scheduler
        self._start_up = start_up
        self._kernel_inbox_full = kernel_inbox_full
        self._handlers: dict[str, Callable[[Message], None]] = {
            "execute_request": self._on_execute,
            "shutdown_request": on_shutdown,
        }
        self.on_message: Callable[[list[bytes]], None] = lambda frames: None
        """Called with each message for the kernel that is no cell."""
        self.on_commands: Callable[[], None] = lambda: None
        """Called when a `%bitfusion` cell comes."""
        self.on_own_reply: Callable[[list[bytes]], bool] = lambda frames: False
        """Called with what the kernel replies to the proxy itself; whether it is for whoever was called."""
        self.seen = False
        """Whether a request has come since the proxy started."""

    def watch(self) -> None:
        """Read shell, or read it again after a pause."""
        self._loop.on(self._channel.socket, self._on_readable)

    def _on_readable(self) -> None:
        if self._lifecycle.connected:
            self._relay()
        else:
            self.receive()
        self._scheduler.advance()

    def receive(self) -> None:
        """Take in all that has arrived."""
        for message in self._channel.receive():
            self._handle(message)

    def _relay(self) -> None:
        """The hot path: to the kernel as it came; cells are accounted for after sending."""
        scheduler = self._scheduler
        for frames in self._channel.receive_frames():
            may_be_ours = _MAGIC_WORD in frames[-1] or b"shutdown_request" in frames[-4:][0]
            relayed = not may_be_ours and scheduler.relay(frames)
            if relayed and not is_type(frames, b"execute_request"):
                self.on_message(frames)
                continue
            message = self._channel.read(frames)
            if message is None:
                continue
            if relayed:
                self._in_kernel.sent(QueuedRequest(message, time.monotonic()))
                continue
            self._handle(message)
            scheduler.advance()
            if self._kernel_inbox_full():
                self._loop.off(self._channel.socket)
                return

    def _handle(self, message: Message) -> None:
        self.seen = True
        self._handlers.get(message.type, self._on_other)(message)

    def _on_execute(self, message: Message) -> None:
        silent = message.content.get("silent", False)
        commands = None if silent else command_lines(str(message.content.get("code", "")))
        if commands is not None:
            self.on_commands()
        self._scheduler.append(QueuedRequest(message, time.monotonic(), commands))

    def _on_other(self, message: Message) -> None:
        reply = None if self._left_to_kernel(message) else self._offline.reply(message.type, message.content)
        if reply is not None:
            self._channel.answer(message, reply)
            return
        if self._is_for_no_comm(message):
            self._channel.pass_over(message)
            return
        if self._start_up.holds(message.type):
            # Clients ask every second until one is answered: of each client, the last.
            self._queue.take_where(lambda r: _asks_the_same(r.message, message))
        self._scheduler.append(QueuedRequest(message, time.monotonic()))

    def _is_for_no_comm(self, message: Message) -> bool:
        """Whether this is for a comm that cannot be: there is no kernel, and no client's opening waits here.

        ipykernel says busy and idle of it; a client may wait for that, and no cell may ever come.
        """
        if not self._lifecycle.connected and message.type == "comm_open":
            return message.content.get("target_name") == ASKS_FOR_WIDGETS
        if self._lifecycle.connected or message.type not in ("comm_msg", "comm_close"):
            return False
        comm = message.content.get("comm_id")

        def opens(other: QueuedRequest) -> bool:
            return other.message.type == "comm_open" and other.message.content.get("comm_id") == comm

        return self._queue.first_where(opens) is None

    def _left_to_kernel(self, message: Message) -> bool:
        better_later = self._lifecycle.connected_soon and message.type in BETTER_FROM_THE_KERNEL
        return self._lifecycle.connected or better_later or self._start_up.holds(message.type)

    def on_wait_over(self) -> None:
        """The kernel that was starting does not come: what was left to it is answered after all."""
        for request in self._queue.take_where(lambda r: r.message.type in _LEFT_TO_KERNEL):
            self._handle(request.message)

    # -- from the kernel -------------------------------------------------------------------------

    def on_kernel_replies(self, replies: Iterable[list[bytes]]) -> None:
        """The kernel has replied, or its inbox has room again."""
        if not self._loop.watches(self._channel.socket):
            self.watch()
        self.relay_replies(replies)
        self._scheduler.advance()

    def relay_replies(self, replies: Iterable[list[bytes]]) -> None:
        """To the clients; cells are accounted for while they read. Damage is passed over."""
        for frames in replies:
            try:
                self._relay_reply(frames)
            except InvalidMessage:
                continue

    def _relay_reply(self, frames: list[bytes]) -> None:
        if frames[0] == DELIMITER:
            if not self.on_own_reply(frames):
                self._scheduler.on_answer(read_unchecked(frames))
            return
        of_cell = is_type(frames, b"execute_reply")
        reply = self._channel.read(frames) if of_cell or self._in_kernel.some_answered_early else None
        if reply is None:
            self._channel.send(frames)
            return
        request = str(reply.parent_header.get("msg_id"))
        if self._in_kernel.is_over(request):
            return
        early = self._in_kernel.take_answered_early(request)
        if not early:
            self._channel.send(frames)
        if of_cell or early:
            self._scheduler.on_execute_reply(reply)


def _asks_the_same(one: Message, other: Message) -> bool:
    return (one.type, one.identities) == (other.type, other.identities)
