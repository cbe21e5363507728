"""The order of cells: which request on shell runs next, in the kernel or in the proxy, or is aborted.

Requests go to the kernel in order of arrival. A cell that finds no kernel asks for a GPU and waits; a
`%bitfusion` cell runs in the proxy when its turn comes; cells behind one that failed are aborted as ipykernel
does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.cell_replies import CellReplies
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
from bitfusion_kernel.proxy.request_queue import QueuedRequest, RequestQueue, RequestsInKernel
from bitfusion_kernel.proxy.wait_display import WaitDisplay

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.proxy.command_cell import CommandCell

ARRIVAL_WINDOW = 0.03
"""Seconds in which cells that a client sends in one go arrive."""


class CellPolicy(Protocol):
    """The settings that decide about cells without a kernel."""

    @property
    def silent_wait(self) -> float:
        """Seconds after which a silent cell is answered although no kernel has run it."""

    def check_cells_acquire(self) -> None:
        """Whether a cell may ask for a GPU. Raises BitfusionError."""


class CellScheduler:
    """What has come on shell and is not done. The proxy has one.

    Args:
        loop: For timers.
        lifecycle: Tells where requests go, and is asked for a GPU.
        replies: Ends cells that the kernel does not end.
        display: Shows the wait in the cell that asked.
        policy: The settings about cells.
        send_to_kernel: Sends frames on shell; False if the kernel's inbox is full.
        make_command_cell: Makes what runs the lines of a `%bitfusion` cell.
        receive_arrived: Takes in what has arrived on shell by now and is not queued yet.
    """

    def __init__(
        self,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        replies: CellReplies,
        display: WaitDisplay,
        policy: CellPolicy,
        *,
        send_to_kernel: Callable[[list[bytes]], bool],
        make_command_cell: Callable[[QueuedRequest], CommandCell],
        receive_arrived: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._lifecycle = lifecycle
        self._replies = replies
        self._display = display
        self._policy = policy
        self._send_to_kernel = send_to_kernel
        self._make_command_cell = make_command_cell
        self._receive_arrived = receive_arrived
        self._queue = RequestQueue()
        self._in_kernel = RequestsInKernel()
        self._command_cell: CommandCell | None = None
        self._last_execution_count = 0
        self._refused: QueuedRequest | None = None

    # -- what comes ------------------------------------------------------------------------------

    def append(self, request: QueuedRequest) -> None:
        """Queue one request. A silent cell is answered after a time, kernel or not."""
        self._queue.append(request)
        if request.is_execute and request.is_silent and not self._lifecycle.connected:
            self._set_silent_timer()

    def relay(self, frames: list[bytes]) -> bool:
        """Send a request to the kernel at once; False if others come first or its inbox is full."""
        return not self._queue and self._command_cell is None and self._send_to_kernel(frames)

    def relayed(self, request: QueuedRequest) -> None:
        """An execute request has gone to the kernel through `relay`."""
        self._in_kernel.sent(request)

    def take_where(self, wanted: Callable[[QueuedRequest], bool]) -> list[QueuedRequest]:
        """Take all requests of a kind out of the queue, in order."""
        return self._queue.take_where(wanted)

    # -- what runs next --------------------------------------------------------------------------

    def advance(self) -> None:
        """Do what can be done now."""
        if self._lifecycle.connected:
            self._advance_to_kernel()
            return
        while self._command_cell is None:
            cell = self._queue.first_where(lambda request: request.is_cell or request.commands is not None)
            if cell is None:
                return
            if cell.commands is None:
                self._ask_for_gpu(cell)
                return
            self._queue.remove(cell)
            self._run_commands(cell)

    def _advance_to_kernel(self) -> None:
        while (request := self._queue.first) is not None and self._command_cell is None:
            if request.commands is not None:
                if self._in_kernel:
                    return  # its turn comes when the cells before it are done
                self._queue.pop()
                self._run_commands(request)
                continue
            if not self._send_to_kernel(request.message.frames):
                return  # `advance` is called again when there is room
            self._queue.pop()
            self._in_kernel.sent(request)

    def _ask_for_gpu(self, cell: QueuedRequest) -> None:
        from bitfusion_client.errors import BitfusionError

        if self._refused is cell:
            return
        try:
            if not self._lifecycle.requested:
                self._policy.check_cells_acquire()
            self.wait_for_gpu(cell)
        except BitfusionError as error:
            self._refused = cell
            self._fail_soon(partial(self._refuse, cell, error))

    def wait_for_gpu(self, cell: QueuedRequest) -> None:
        """Ask for a GPU, unless that has been done, and show the wait in this cell.

        Raises:
            BitfusionError: The GPU can't even be asked for.
        """
        self._lifecycle.request()
        self._display.show_in(cell)

    def _fail_soon(self, fail: Callable[[], None]) -> None:
        """Let a cell that fails the moment it arrives fail a little later.

        By then the cells that were sent with it ("Run All") have arrived, too, and are aborted, not run.
        """
        self._loop.set_timer("fail soon", time.monotonic() + ARRIVAL_WINDOW, fail)

    def _refuse(self, cell: QueuedRequest, error: BitfusionError) -> None:
        self._refused = None
        if cell in self._queue:
            self._fail_waiting(cell, error)
        self.advance()

    # -- %bitfusion cells ------------------------------------------------------------------------

    @property
    def runs_commands(self) -> bool:
        """Whether a `%bitfusion` cell runs in the proxy now."""
        return self._command_cell is not None

    def interrupt_commands(self) -> bool:
        """Interrupt the client command that a `%bitfusion` cell runs; False if there is none."""
        return self._command_cell is not None and self._command_cell.interrupt()

    def _run_commands(self, cell: QueuedRequest) -> None:
        self._replies.announce(cell)
        self._command_cell = self._make_command_cell(cell)
        self._command_cell.proceed()

    def finish_commands(self, cell: QueuedRequest) -> None:
        """Called by the command cell when all its lines have run."""
        self._leave_commands(cell)
        # JupyterLab shows [*] for ever after a reply without a number, so the last one is repeated.
        self._replies.finish(cell, max(1, self._last_execution_count))

    def fail_commands(self, cell: QueuedRequest, error: BitfusionError) -> None:
        """Called by the command cell when a line has failed; the others are not run."""

        def fail() -> None:
            self._leave_commands(cell)
            self._fail(cell, error)
            self.advance()

        self._fail_soon(fail)

    def _leave_commands(self, cell: QueuedRequest) -> None:
        self._command_cell = None
        if self._display.cell is cell:
            self._display.end()

    # -- ends of cells ---------------------------------------------------------------------------

    @property
    def waited(self) -> float | None:
        """Seconds for which a cell has waited for a GPU; None if no cell waits."""
        return None if self._display.cell is None else self._display.waited

    def fail_wait(self, error: BitfusionError) -> None:
        """The wait has ended without a kernel: the cell that waited shows why."""
        cell = self._display.end()
        if cell is not None:
            self._fail_waiting(cell, error)

    def _fail_waiting(self, cell: QueuedRequest, error: BitfusionError) -> None:
        if self._command_cell is not None and self._command_cell.cell is cell:
            self._command_cell.fail(error)
        else:
            self._queue.remove(cell)
            self._fail(cell, error)

    def _fail(self, cell: QueuedRequest, error: BitfusionError) -> None:
        aborts = cell.stops_on_error and not cell.is_silent
        if aborts:
            self._receive_arrived()  # what has arrived by now is aborted; what comes upon the reply is not
        self._replies.announce(cell)
        self._replies.fail(cell, error)
        if aborts:
            self._abort_queued()

    def _abort_queued(self) -> None:
        for cell in self._queue.take_where(lambda request: request.is_execute and not request.is_silent):
            self._replies.abort(cell)

    def fail_running(self, error: BitfusionError) -> None:
        """The kernel is gone: the cell that ran shows why, the others never run."""
        reported = False
        for cell in self._in_kernel.take_all():
            if cell.is_silent or reported:
                self._replies.abort(cell)
            else:
                self._replies.fail(cell, error)
                reported = True
        self._abort_queued()

    # -- what the kernel answers -----------------------------------------------------------------

    @property
    def withholds_replies(self) -> bool:
        """Whether some replies of the kernel must not be relayed, because the proxy has given them."""
        return self._in_kernel.some_answered_early

    def withholds(self, reply: Message) -> bool:
        """Whether this reply must not be relayed; asked once for each reply."""
        return self._in_kernel.take_answered_early(str(reply.parent_header.get("msg_id")))

    def on_execute_reply(self, reply: Message) -> None:
        """The kernel has run a cell. If it failed, cells queued here are aborted as those in the kernel."""
        cell = self._in_kernel.answered(str(reply.parent_header.get("msg_id")))
        count = reply.content.get("execution_count")
        if isinstance(count, int):
            self._last_execution_count = count
        failed = reply.content.get("status") == "error"
        if failed and cell is not None and cell.stops_on_error and not cell.is_silent:
            self._abort_queued()

    # -- what happens to the kernel ----------------------------------------------------------------

    def on_kernel_connected(self) -> None:
        """The kernel answers: what has waited for it runs."""
        self._loop.cancel_timer("silent")
        if self._command_cell is not None:
            self._command_cell.on_kernel_connected()
        self.advance()

    def on_wait_over(self) -> None:
        """A wait has ended without a kernel: whoever still wants one asks again."""
        if self._command_cell is not None:
            self._command_cell.on_wait_over()
        self.advance()

    # -- silent cells ----------------------------------------------------------------------------

    def _set_silent_timer(self) -> None:
        waiting = self._queue.first_where(_is_unanswered_silent)
        if waiting is not None and not self._lifecycle.connected:
            due = waiting.arrived_at + self._policy.silent_wait
            self._loop.set_timer("silent", due, self._answer_silent)

    def _answer_silent(self) -> None:
        """Clients wait for the reply to their silent start-up code; it still runs once it can."""
        if self._lifecycle.connected:
            return
        now = time.monotonic()
        for cell in filter(_is_unanswered_silent, self._queue.requests()):
            if cell.arrived_at + self._policy.silent_wait <= now:
                cell.answered = True
                self._replies.announce(cell)
                self._replies.finish(cell, 0)
        self._set_silent_timer()


def _is_unanswered_silent(request: QueuedRequest) -> bool:
    return request.is_execute and request.is_silent and not request.answered
