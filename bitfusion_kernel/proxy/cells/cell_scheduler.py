"""The order of cells: which request on shell runs next, in the kernel or in the proxy.

Requests go to the kernel in order of arrival; each subshell has an order of its own. A cell that finds no
kernel asks for a GPU and waits; a `%bitfusion` cell runs in the proxy when its turn comes. How a cell ends
that the kernel does not end, and what is aborted behind it, is `cell_replies`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.cells.cell_replies import CellReplies
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue, RequestsInKernel
from bitfusion_kernel.proxy.cells.running_commands import Asides, RunningCommands
from bitfusion_kernel.proxy.cells.silent_cells import SilentCells
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.proxy.cells.command_cell import CommandCell, CommandScheduler

ARRIVAL_WINDOW = 0.03
"""Seconds in which cells that a client sends in one go arrive, if nothing delays them."""

SURE = 1.0
"""Seconds for which a cell that runs is taken to be the one that runs; then the next request asks."""

AFTER_INTERRUPT = 1.0
"""Seconds after an interrupt in which the cell that it has hit replies. If it does not, the kernel is asked;
after as many more the `%bitfusion` cells that wait for it wait no longer."""

_AFTER_INTERRUPT = "after an interrupt"


class CellScheduler:
    """Moves what has come on shell to where it runs. The proxy has one.

    Args:
        loop: For timers.
        lifecycle: Tells where requests go, and is asked for a GPU.
        queue: What has come and has not begun.
        in_kernel: What the kernel has been sent.
        commands: The `%bitfusion` cells that run here.
        replies: Ends cells that the kernel does not end.
        display: Shows the wait in the cell that asked.
        silent_wait: Gives the seconds after which a silent cell is answered although no kernel has run it.
        send_to_kernel: Sends frames on shell; False if the kernel's inbox is full.
        ask_kernel: Asks the kernel anything on one of its shells, where all it has been sent comes first; the
            question's id, or None if the inbox is full.
        on_cell_over: Called when a kernel has finished a cell.
        on_idle: Called when it has finished all that it was sent.
        make_command_cell: Makes what runs the lines of a `%bitfusion` cell for a scheduler.
    """

    def __init__(
        self,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        queue: RequestQueue,
        in_kernel: RequestsInKernel,
        commands: RunningCommands,
        replies: CellReplies,
        display: WaitDisplay,
        *,
        silent_wait: Callable[[], float],
        send_to_kernel: Callable[[list[bytes]], bool],
        ask_kernel: Callable[[str | None], str | None],
        on_cell_over: Callable[[], None],
        on_idle: Callable[[], None],
        make_command_cell: Callable[[QueuedRequest, CommandScheduler], CommandCell],
    ) -> None:
        self._loop = loop
        self._lifecycle = lifecycle
        self._queue = queue
        self._in_kernel = in_kernel
        self._commands = commands
        self._replies = replies
        self._display = display
        self._send_to_kernel = send_to_kernel
        self._ask_kernel = ask_kernel
        self._on_cell_over = on_cell_over
        self._on_idle = on_idle
        self._make_command_cell = make_command_cell
        self._silent_cells = SilentCells(loop, queue, replies, silent_wait)
        self._asides = Asides()
        self._refused: QueuedRequest | None = None

    # -- what comes ------------------------------------------------------------------------------

    def append(self, request: QueuedRequest) -> None:
        """Queue one request, or abort it where too many wait. A helper's is answered after a time."""
        if not self._queue.has_room_for(request):
            self._replies.abort(request)
            return
        if not self._lifecycle.connected or self._commands.waits_in(request.subshell):
            before = self._queue.last(request.subshell) or self._commands.last_in(request.subshell)
            self._asides.look_at(request, before)
        self._queue.append(request)
        if request.is_helper and not self._lifecycle.connected:
            self._silent_cells.watch()

    def relay(self, frames: list[bytes]) -> bool:
        """Send a request to the kernel at once; False if something comes first or its inbox is full."""
        others = self._queue or self._commands or self._unsure()
        return not others and self._send_to_kernel(frames)

    # -- what runs next --------------------------------------------------------------------------

    def advance(self) -> None:
        """Do what can be done now."""
        if self._lifecycle.connected:
            self._advance_to_kernel()
            self._run_asides(self._commands.waits_in)  # for another size
            return
        while (cell := self._queue.first_where(self._is_next_without_kernel)) is not None:
            if cell.commands is None:
                self._ask_for_gpu(cell)
                break
            self._queue.remove(cell)
            self._run_commands(cell)
        self._run_asides(lambda shell: not self._commands.works_in(shell))

    def _run_asides(self, may_run_in: Callable[[str | None], bool]) -> None:
        while (cell := self._asides.take(self._queue, may_run_in)) is not None:
            self._queue.remove(cell)
            self._run_commands(cell)

    def _is_next_without_kernel(self, request: QueuedRequest) -> bool:
        waits_its_turn = self._commands.run_in(request.subshell)
        return not waits_its_turn and (request.is_cell or request.commands is not None)

    def _unsure(self) -> list[str | None]:
        """The shells of which it is not known whether the cell that ran last still runs."""
        return self._in_kernel.unsure(time.monotonic() - SURE)

    def _advance_to_kernel(self) -> None:
        if self._queue:
            self.ask_unsure()
        for subshell in self._queue.subshells:
            if not self._advance_shell(subshell):
                return  # `advance` is called again when there is room

    def _advance_shell(self, subshell: str | None) -> bool:
        """Do what one shell can do now; False if the kernel's inbox is full."""
        while not self._commands.run_in(subshell) and (request := self._queue.first(subshell)) is not None:
            if request.commands is not None:
                if self._in_kernel.runs(subshell):
                    if not self._in_kernel.has_asked(subshell):
                        self._ask(subshell)
                    return True  # its turn comes when the cells before it are done
                self._queue.remove(request)
                self._run_commands(request)
                continue
            if not self._send_to_kernel(request.message.frames):
                return False
            self._queue.remove(request)
            self._in_kernel.sent(request)
        return True

    def _ask_for_gpu(self, cell: QueuedRequest) -> None:
        from bitfusion_client.errors import BitfusionError

        if self._refused is cell:
            return
        # Before all that takes time: `jupyter console` shows nothing of a cell that is not busy within 50 ms.
        self._replies.announce(cell)
        try:
            self.wait_for_gpu(cell)
        except BitfusionError as error:
            self._refused = cell
            self._fail_soon(cell, partial(self._refuse, cell, error))

    def wait_for_gpu(self, cell: QueuedRequest) -> None:
        """Ask for a GPU, unless that has been done, and show the wait in this cell. Raises BitfusionError."""
        self._lifecycle.request(told_to=cell.commands is not None)
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

    def _run_commands(self, cell: QueuedRequest) -> None:
        self._replies.announce(cell)
        commands = self._make_command_cell(cell, self)
        self._commands.add(commands)
        commands.proceed()

    def finish_commands(self, cell: QueuedRequest) -> None:
        """Called by the command cell when all its lines have run."""
        self._leave_commands(cell)
        # JupyterLab shows [*] for ever after a reply without a number, so the last one is repeated.
        self._replies.finish(cell, max(1, self._in_kernel.last_count))

    def fail_commands(self, cell: QueuedRequest, error: BitfusionError) -> None:
        """Called by the command cell when a line has failed; the others are not run."""

        def fail() -> None:
            self._leave_commands(cell)
            self._replies.fail(cell, error)
            self.advance()

        self._fail_soon(cell, fail)

    def _leave_commands(self, cell: QueuedRequest) -> None:
        self._commands.remove(cell)
        if self._display.cell is cell:
            self._display.end()

    # -- ends of cells ---------------------------------------------------------------------------

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
            self._replies.fail(cell, error)

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

    # -- what the kernel answers -----------------------------------------------------------------

    def on_execute_reply(self, reply: Message) -> None:
        """The kernel has run a cell. If it failed, cells queued here are aborted as those in the kernel."""
        cell = self._account_for(reply)
        if cell is not None and reply.content.get("status") == "error":
            self._replies.abort_behind(cell)
        if cell is not None and cell.is_cell:
            self._on_cell_over()
        self._tell_idle()

    def on_answer(self, reply: Message) -> None:
        """The kernel has answered a question of the proxy's on shell."""
        self._account_for(reply)
        self._tell_idle()

    def _tell_idle(self) -> None:
        if not self._in_kernel.shells:
            self._on_idle()

    def _account_for(self, reply: Message) -> QueuedRequest | None:
        """The cell that is over, if any. What came before is over, too, and told that its reply is lost."""
        request = str(reply.parent_header.get("msg_id"))
        cell, lost = self._in_kernel.answered(request, reply.content.get("execution_count"))
        if lost:
            from bitfusion_kernel.proxy.cells.lost_reply import ReplyLost

            for each in lost:
                if not self._in_kernel.take_answered_early(each.message.id):
                    self._replies.end(each, ReplyLost())
            self._replies.tell_busy(self._in_kernel.running())
        return cell

    def _ask(self, subshell: str | None) -> None:
        question = self._ask_kernel(subshell)
        if question is not None:
            self._in_kernel.asked(question, subshell)

    def ask_unsure(self) -> None:
        """Ask each shell whose last cell has run for a while: its reply may be lost, and none may follow."""
        for subshell in self._unsure():
            self._ask(subshell)

    def on_interrupted(self) -> None:
        """The kernel has got an interrupt, and may have lost the reply to a cell, or to a question."""
        if self._in_kernel.shells:
            self._loop.set_timer(_AFTER_INTERRUPT, time.monotonic() + AFTER_INTERRUPT, self._look_for_lost)

    def ask_all(self) -> None:
        """Ask each shell: the kernel has opened its sockets anew, as when a cell has replaced its program."""
        for subshell in self._in_kernel.shells:
            self._ask(subshell)

    def _look_for_lost(self) -> None:
        waited_for = {shell: self._in_kernel.head(shell) for shell in self._in_kernel.shells}
        self.ask_all()

        def abort() -> None:
            stuck = {shell for shell, head in waited_for.items() if self._in_kernel.head(shell) == head}
            self._replies.abort_where(lambda cell: cell.subshell in stuck)
            self.advance()

        if waited_for:
            self._loop.set_timer(_AFTER_INTERRUPT, time.monotonic() + AFTER_INTERRUPT, abort)

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
