"""The order of cells: which request on shell runs next, in the kernel or in the proxy, or is aborted.

Requests go to the kernel in order of arrival; each subshell has an order of its own. A cell that finds no
kernel asks for a GPU and waits; a `%bitfusion` cell runs in the proxy when its turn comes; cells behind one
that failed are aborted as ipykernel does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.cells.asides import Asides
from bitfusion_kernel.proxy.cells.cell_replies import CellReplies
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue, RequestsInKernel
from bitfusion_kernel.proxy.cells.running_commands import RunningCommands
from bitfusion_kernel.proxy.cells.silent_cells import SilentCells
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle

if TYPE_CHECKING:
    from typing import Protocol

    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.proxy.cells.command_cell import CommandCell

    class CellPolicy(Protocol):
        """The settings that decide about cells without a kernel."""

        @property
        def silent_wait(self) -> float:
            """Seconds after which a silent cell is answered although no kernel has run it."""

        def check_acquire(self) -> None:
            """Whether anything but `%bitfusion acquire` may ask for a GPU. Raises BitfusionError."""


ARRIVAL_WINDOW = 0.03
"""Seconds in which cells that a client sends in one go arrive, if nothing delays them."""


class CellScheduler:
    """What has come on shell and is not done. The proxy has one.

    Args:
        loop: For timers.
        lifecycle: Tells where requests go, and is asked for a GPU.
        replies: Ends cells that the kernel does not end.
        display: Shows the wait in the cell that asked.
        policy: The settings about cells.
        subshells: Tells which shells the kernel has still to make.
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
        subshells: EarlySubshells,
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
        self._subshells = subshells
        self._queue = RequestQueue()
        self._silent_cells = SilentCells(loop, self._queue, replies, lambda: policy.silent_wait)
        self._asides = Asides()
        self._in_kernel = RequestsInKernel()
        self._commands = RunningCommands()
        self.on_cell_sent: Callable[[QueuedRequest], None] | None = None
        """Called with each cell that the kernel is sent, be it a silent one, where somebody has to know."""
        self._last_execution_count = 0
        self._refused: QueuedRequest | None = None

    # -- what comes ------------------------------------------------------------------------------

    def append(self, request: QueuedRequest) -> None:
        """Queue one request. A silent cell is answered after a time, kernel or not."""
        if not self._lifecycle.connected:
            before = self._queue.last(request.subshell) or self._commands.last_in(request.subshell)
            self._asides.look_at(request, before)
        self._queue.append(request)
        if request.is_execute and request.is_silent and not self._lifecycle.connected:
            self._silent_cells.watch()

    def relay(self, frames: list[bytes]) -> bool:
        """Send a request to the kernel at once; False if others come first or its inbox is full."""
        others = self._queue or self._commands or self._subshells.awaited
        return not others and self._send_to_kernel(frames)

    def relayed(self, request: QueuedRequest) -> None:
        """An execute request has gone to the kernel through `relay`."""
        self._sent(request)

    def _sent(self, request: QueuedRequest) -> None:
        self._in_kernel.sent(request)
        if self.on_cell_sent is not None and request.is_execute:
            self.on_cell_sent(request)

    def take_where(self, wanted: Callable[[QueuedRequest], bool]) -> list[QueuedRequest]:
        """Take all requests of a kind out of the queue, in order."""
        return self._queue.take_where(wanted)

    # -- what runs next --------------------------------------------------------------------------

    def advance(self) -> None:
        """Do what can be done now."""
        if self._lifecycle.connected:
            self._advance_to_kernel()
            return
        while (cell := self._queue.first_where(self._is_next_without_kernel)) is not None:
            if cell.commands is None:
                self._ask_for_gpu(cell)
                break
            self._queue.remove(cell)
            self._run_commands(cell)
        while (cell := self._asides.take(self._queue, self._commands.shells_at_work)) is not None:
            self._queue.remove(cell)
            self._run_commands(cell)

    def _is_next_without_kernel(self, request: QueuedRequest) -> bool:
        waits_its_turn = self._commands.run_in(request.subshell)
        return not waits_its_turn and (request.is_cell or request.commands is not None)

    def _advance_to_kernel(self) -> None:
        for subshell in self._queue.subshells:
            if not self._advance_shell(subshell):
                return  # `advance` is called again when there is room

    def _advance_shell(self, subshell: str | None) -> bool:
        """Do what one shell can do now; False if the kernel's inbox is full."""
        if self._subshells.awaits(subshell):
            return True
        while not self._commands.run_in(subshell) and (request := self._queue.first(subshell)) is not None:
            if request.commands is not None:
                if self._in_kernel.runs(subshell):
                    return True  # its turn comes when the cells before it are done
                self._queue.remove(request)
                self._run_commands(request)
                continue
            if not self._send_to_kernel(request.message.frames):
                return False
            self._queue.remove(request)
            self._sent(request)
        return True

    def _ask_for_gpu(self, cell: QueuedRequest) -> None:
        from bitfusion_client.errors import BitfusionError

        if self._refused is cell:
            return
        # Before all that takes time: `jupyter console` shows nothing of a cell that is not busy within 50 ms.
        self._replies.announce(cell)
        try:
            self.check_acquire()
            self.wait_for_gpu(cell)
        except BitfusionError as error:
            self._refused = cell
            self._fail_soon(cell, partial(self._refuse, cell, error))

    def check_acquire(self) -> None:
        """Whether a cell, or a debugger, may ask for a GPU now.

        Raises:
            BitfusionError: None is asked for yet, and by the settings only `%bitfusion acquire` does it.
        """
        if not self._lifecycle.requested:
            self._policy.check_acquire()

    def wait_for_gpu(self, cell: QueuedRequest) -> None:
        """Ask for a GPU, unless that has been done, and show the wait in this cell.

        Raises:
            BitfusionError: The GPU can't even be asked for.
        """
        self._lifecycle.request()
        self._display.show_in(cell)

    def _fail_soon(self, cell: QueuedRequest, fail: Callable[[], None]) -> None:
        """Let a cell that fails the moment it arrives fail a little later.

        By then the cells that were sent with it ("Run All") have arrived, too, and are aborted, not run.
        """
        self._loop.set_timer(f"fail {cell.message.id}", time.monotonic() + ARRIVAL_WINDOW, fail)

    def _refuse(self, cell: QueuedRequest, error: BitfusionError) -> None:
        self._refused = None
        if cell in self._queue:
            self._fail_waiting(cell, error)
        self.advance()

    # -- %bitfusion cells ------------------------------------------------------------------------

    @property
    def runs_commands(self) -> bool:
        """Whether a `%bitfusion` cell of the main shell runs in the proxy now."""
        return self._commands.run_in(None)

    def interrupt_commands(self) -> bool:
        """Interrupt the client commands that `%bitfusion` cells run.

        False if the main shell runs none: then the interrupt is also for what it runs instead.
        """
        return self._commands.interrupt()

    def _run_commands(self, cell: QueuedRequest) -> None:
        self._replies.announce(cell)
        commands = self._make_command_cell(cell)
        self._commands.add(commands)
        commands.proceed()

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

        self._fail_soon(cell, fail)

    def _leave_commands(self, cell: QueuedRequest) -> None:
        self._commands.remove(cell)
        if self._display.cell is cell:
            self._display.end()

    # -- ends of cells ---------------------------------------------------------------------------

    @property
    def waited(self) -> float | None:
        """Seconds for which a cell has waited for a GPU; None if no cell waits."""
        return None if self._display.cell is None else self._display.waited

    @property
    def waits_unattended(self) -> bool:
        """Whether a cell waits for a GPU that nobody watches, but perhaps a tool that limits its time."""
        return self._display.cell is not None and self._display.cell.is_unattended

    def fail_wait(self, error: BitfusionError) -> bool:
        """The wait has ended without a kernel: the cell that waited shows why. False if none did."""
        cell = self._display.end()
        if cell is not None:
            self._fail_waiting(cell, error)
        return cell is not None

    def _fail_waiting(self, cell: QueuedRequest, error: BitfusionError) -> None:
        commands = self._commands.of(cell)
        if commands is not None:
            commands.fail(error)
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
            self._abort_behind(cell)

    def _abort_behind(self, cell: QueuedRequest) -> None:
        def behind(request: QueuedRequest) -> bool:
            came_later = request.arrived_at >= cell.arrived_at
            return (
                came_later
                and request.is_execute
                and not request.is_silent
                and request.subshell == cell.subshell
            )

        for queued in self._queue.take_where(behind):
            self._replies.abort(queued)

    def stop_waiting(self, why: BitfusionError | None = None) -> None:
        """The proxy ends: of a wait only `why` stays in a notebook whose client still listens."""
        waited = self._display.end()
        if waited is not None and why is not None:
            self._replies.show(waited, why)

    def show_death(self, error: BitfusionError) -> None:
        """The kernel is gone, and the proxy ends: the cell of each shell that ran, or waited, shows why.

        Nothing is replied, as by a plain kernel that died: that is how clients tell a dead kernel from a cell
        that failed.
        """
        waited = self._display.end()
        cells = [commands.cell for commands in self._commands] + self._in_kernel.running()
        if waited is not None and waited not in cells:
            cells.append(waited)
        for cell in cells:
            self._replies.show(cell, error)

    @property
    def has_cells(self) -> bool:
        """Whether there is a cell here that an interrupt can be meant for."""
        return bool(self._commands) or self._queue.first_where(lambda each: each.is_cell) is not None

    @property
    def announced_cell(self) -> str | None:
        """Id of the cell here for which `busy` has been said, and for which the kernel will say it again."""
        cell = self._queue.first_where(lambda each: each.is_cell and each.announced)
        return None if cell is None else cell.message.id

    @property
    def running_cells(self) -> list[QueuedRequest]:
        """The cell that each shell of the kernel runs, the main one's first; no silent ones."""
        return self._in_kernel.running()

    @property
    def running_cell(self) -> str | None:
        """Id of the cell that the kernel's main shell runs or is about to run; None if there is none."""
        return self._in_kernel.head(None)

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
            self._abort_behind(cell)

    # -- what happens to the kernel ----------------------------------------------------------------

    def on_kernel_connected(self) -> None:
        """The kernel answers: what has waited for it runs."""
        self._silent_cells.leave_to_kernel()
        self._asides = Asides()
        for commands in self._commands:
            commands.on_kernel_connected()
        self.advance()

    def on_wait_over(self) -> None:
        """A wait has ended without a kernel: whoever still wants one asks again."""
        for commands in self._commands:
            commands.on_wait_over()
        self.advance()
