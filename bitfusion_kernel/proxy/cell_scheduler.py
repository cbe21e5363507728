"""The line of cells: in order to the kernel, `%bitfusion` cells to the proxy, aborted after an error."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.request_queue import QueuedRequest, RequestQueue, RequestsInKernel

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.proxy.command_cell import CommandCell
    from bitfusion_kernel.proxy.proxy import Proxy

ARRIVAL_WINDOW = 0.03
"""Seconds in which cells that a client sends in one go arrive."""

DEFAULT_SILENT_WAIT = 5.0
"""Seconds; used while the settings themselves are wrong."""


class CellScheduler:
    """What has come on shell and is not done. The proxy has one."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.queue = RequestQueue()
        self.in_kernel = RequestsInKernel()
        self.command_cell: CommandCell | None = None
        self._answered_early: set[str] = set()
        self._last_number = 0
        self._refused: QueuedRequest | None = None

    @property
    def clear(self) -> bool:
        """Nothing stands between a new message and the kernel."""
        return not self.queue and self.command_cell is None

    def append(self, entry: QueuedRequest) -> None:
        """One more, at the end. A silent one is answered after a time, kernel or not."""
        self.queue.append(entry)
        if entry.is_execute and entry.is_silent and not self._proxy.running:
            self._set_silent_timer()

    def advance(self) -> None:
        """Do what can be done now."""
        if self._proxy.running:
            self._advance_to_kernel()
            return
        while self.command_cell is None:
            entry = self._next_wish()
            if entry is None:
                return
            if entry.commands is not None:
                self.queue.remove(entry)
                self._run_commands(entry)
                continue
            self._ask_for_gpu(entry)
            return

    def _next_wish(self) -> QueuedRequest | None:
        return self.queue.first_where(lambda entry: entry.is_cell or entry.commands is not None)

    def _ask_for_gpu(self, entry: QueuedRequest) -> None:
        from bitfusion_client.errors import BitfusionError

        if self._refused is entry:
            return
        try:
            self._proxy.wait.begin_for(entry)
        except BitfusionError as error:
            self._refused = entry
            self.refuse_soon(partial(self._refuse, entry, error))

    def refuse_soon(self, refuse: Callable[[], None]) -> None:
        """A cell that fails the moment it arrives fails a little later: by then the cells that were sent
        with it have arrived, too, and are aborted rather than run ("Run All")."""
        self._proxy.loop.set_timer("refuse", time.monotonic() + ARRIVAL_WINDOW, refuse)

    def _refuse(self, entry: QueuedRequest, error: BitfusionError) -> None:
        self._refused = None
        if entry in self.queue.entries():
            self.fail_waiting(entry, error)
        self.advance()

    def _advance_to_kernel(self) -> None:
        kernel = self._proxy.kernel
        while (entry := self.queue.first) is not None and self.command_cell is None:
            if entry.commands is not None:
                if self.in_kernel:
                    return  # its turn comes when the cells before it are done
                self.queue.pop()
                self._run_commands(entry)
                continue
            if not kernel.send_shell(entry.message.frames):
                return  # its inbox is full; `kernel` comes back here when there is room
            self.queue.pop()
            self.account(entry)
            if entry.answered:
                self._answered_early.add(entry.message.id)

    def account(self, entry: QueuedRequest) -> None:
        """Remember a cell that has gone to the kernel. Subshells run beside the line, not in it."""
        if entry.is_execute and "subshell_id" not in entry.message.header:
            self.in_kernel.sent(entry)

    # -- %bitfusion cells ------------------------------------------------------------------------

    def announce(self, entry: QueuedRequest) -> None:
        """Say `busy` for a cell the proxy itself works on, once."""
        if not entry.announced:
            entry.announced = True
            self._proxy.publisher.status("busy", entry.message.header)

    def _run_commands(self, entry: QueuedRequest) -> None:
        from bitfusion_kernel.proxy.command_cell import CommandCell

        self.announce(entry)
        self.command_cell = CommandCell(self._proxy, entry)
        self.command_cell.proceed()

    def finish_commands(self, entry: QueuedRequest, error: BitfusionError | None) -> None:
        """Called by the command cell at its end."""
        self.command_cell = None
        if self._proxy.wait.cell is entry:
            self._proxy.wait.end_notice()
        if error is None:
            # JupyterLab shows [*] for ever after a reply without a number, so the last one is repeated.
            number = max(1, self._last_number)
            self._proxy.publisher.finish_cell(self._proxy.clients.shell, entry.message, number)
        else:
            self._fail(entry, error)

    # -- ends of cells ---------------------------------------------------------------------------

    def fail_waiting(self, entry: QueuedRequest, error: BitfusionError) -> None:
        """A cell that did not get its GPU."""
        if self.command_cell is not None and self.command_cell.entry is entry:
            self.command_cell.fail(error)
        else:
            self.queue.remove(entry)
            self._fail(entry, error)

    def _fail(self, entry: QueuedRequest, error: BitfusionError) -> None:
        aborts = entry.stops_on_error and not entry.is_silent
        if aborts:
            self._proxy.read_shell()  # what has arrived by now is aborted; what comes upon the reply is not
        self.announce(entry)
        self._proxy.publisher.fail_cell(self._proxy.clients.shell, entry.message, error)
        if aborts:
            self.abort_queued()

    def abort_queued(self) -> None:
        """Answer the cells behind a failed one as ipykernel does."""
        for entry in self.queue.take_where(lambda e: e.is_execute and not e.is_silent):
            self._proxy.publisher.abort_cell(self._proxy.clients.shell, entry.message)

    def fail_running(self, error: BitfusionError) -> None:
        """The kernel is gone: the cell that ran says why, the others never run."""
        told = False
        for entry in self.in_kernel.take_all():
            if entry.is_silent or told:
                self._proxy.publisher.abort_cell(self._proxy.clients.shell, entry.message)
            else:
                self._proxy.publisher.fail_cell(self._proxy.clients.shell, entry.message, error)
                told = True
        self.abort_queued()

    @property
    def has_answered_early(self) -> bool:
        """Whether some replies of the kernel are not to be relayed any more."""
        return bool(self._answered_early)

    def take_answered_early(self, reply: Message) -> bool:
        """Whether the proxy has given this reply already."""
        request_id = str(reply.parent_header.get("msg_id"))
        if request_id not in self._answered_early:
            return False
        self._answered_early.discard(request_id)
        return True

    def on_execute_reply(self, reply: Message) -> None:
        """Keep account of what the kernel has; after an error, what waits here is aborted as there."""
        entry = self.in_kernel.answered(str(reply.parent_header.get("msg_id")))
        number = reply.content.get("execution_count")
        if isinstance(number, int):
            self._last_number = number
        failed = reply.content.get("status") == "error"
        if failed and entry is not None and entry.stops_on_error and not entry.is_silent:
            self.abort_queued()

    # -- silent cells ----------------------------------------------------------------------------

    def _set_silent_timer(self) -> None:
        waiting = self.queue.first_where(lambda e: e.is_execute and e.is_silent and not e.answered)
        if waiting is not None and not self._proxy.running:
            due = waiting.arrived_at + self._silent_wait()
            self._proxy.loop.set_timer("silent", due, self._answer_silent)

    def _answer_silent(self) -> None:
        """Clients wait for the reply to their silent start-up code; it still runs once it can."""
        now = time.monotonic()
        for entry in self.queue.entries():
            due = entry.arrived_at + self._silent_wait() <= now
            if (
                entry.is_execute
                and entry.is_silent
                and not entry.answered
                and due
                and not self._proxy.running
            ):
                entry.answered = True
                self.announce(entry)
                self._proxy.publisher.finish_cell(self._proxy.clients.shell, entry.message, 0)
        self._set_silent_timer()

    def _silent_wait(self) -> float:
        from bitfusion_client.errors import BitfusionError

        try:
            return self._proxy.starter.settings.silent_wait
        except BitfusionError:
            return DEFAULT_SILENT_WAIT
