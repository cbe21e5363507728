"""The `%bitfusion` cells that run in the proxy now, and those that may run before their turn.

One runs in each shell, and an aside beside one that waits for a GPU: a person who looks at a cell that waits
asks `%bitfusion status` or `pool`, or for another size, and must not wait for the answer, too. Cells that
came in one go ("Run All") keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from bitfusion_kernel.magic.cell import needs_no_turn

if TYPE_CHECKING:
    from typing import Protocol

    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue

    class RunningCommand(Protocol):
        """A `CommandCell`, or what takes its place in the order of cells."""

        cell: QueuedRequest

        @property
        def waits_for_gpu(self) -> bool:
            """Whether it does nothing but wait for a GPU."""

        def fail(self, error: BitfusionError) -> None:
            """End with an error."""

        def interrupt(self) -> bool:
            """The user's interrupt; whether it was for something that runs here."""

        def on_wait_over(self) -> None:
            """A wait that was cancelled before it came has ended."""

        def on_kernel_connected(self) -> None:
            """The kernel is there."""


ONE_GO = 0.3
"""Seconds between two cells that a client may still have sent in one go: JupyterLab takes 10 ms for each,
and more on a busy machine. Nobody sees that a cell waits, and asks why, in that time."""


class RunningCommands:
    """The scheduler has one. It adds a second cell to a shell only behind one that waits for a GPU."""

    def __init__(self) -> None:
        self._cells: list[RunningCommand] = []

    def __bool__(self) -> bool:
        return bool(self._cells)

    def __iter__(self) -> Iterator[RunningCommand]:
        """All, also those that end while the caller looks at them."""
        return iter(list(self._cells))

    def add(self, commands: RunningCommand) -> None:
        """A cell begins."""
        self._cells.append(commands)

    def remove(self, cell: QueuedRequest) -> None:
        """A cell has ended."""
        self._cells = [commands for commands in self._cells if commands.cell is not cell]

    def of(self, cell: QueuedRequest) -> RunningCommand | None:
        """What runs the lines of this cell; None if it is no `%bitfusion` cell that runs."""
        return next((commands for commands in self._cells if commands.cell is cell), None)

    def run_in(self, subshell: str | None) -> bool:
        """Whether a shell runs one, or has one that waits for a GPU."""
        return any(commands.cell.subshell == subshell for commands in self._cells)

    def last_in(self, subshell: str | None) -> QueuedRequest | None:
        """The cell of a shell that came last."""
        cells = (commands.cell for commands in reversed(self._cells))
        return next((cell for cell in cells if cell.subshell == subshell), None)

    def works_in(self, subshell: str | None) -> bool:
        """Whether a shell runs one that does not wait for a GPU."""
        return any(each.cell.subshell == subshell and not each.waits_for_gpu for each in self._cells)

    def waits_in(self, subshell: str | None) -> bool:
        """Whether those of a shell wait for a GPU and do nothing else, and there are any."""
        return self.run_in(subshell) and not self.works_in(subshell)

    def interrupt(self) -> bool:
        """Interrupt the bitfusion client wherever one runs; whether one did in the main shell."""
        interrupted = {commands.cell.subshell for commands in list(self._cells) if commands.interrupt()}
        return None in interrupted


class Asides:
    """Which of the queued requests may be answered before their turn; the scheduler has one."""

    def __init__(self) -> None:
        self._asides: list[QueuedRequest] = []

    def look_at(self, request: QueuedRequest, before: QueuedRequest | None) -> None:
        """A request has come; `before` is what came before it to its shell and is queued or runs here."""
        if before is None or request.commands is None or not needs_no_turn(request.commands):
            return
        if _seconds_between(before, request) > ONE_GO:
            self._asides.append(request)

    def take(self, queue: RequestQueue, may_run_in: Callable[[str | None], bool]) -> QueuedRequest | None:
        """The next one that is still queued and may run in its shell now, or None."""
        self._asides = [request for request in self._asides if request in queue]
        for request in self._asides:
            if may_run_in(request.subshell):
                self._asides.remove(request)
                return request
        return None


def _seconds_between(one: QueuedRequest, other: QueuedRequest) -> float:
    """By the client's clock, as requests may be read late; of two clients, by their arrival."""
    from bitfusion_kernel.protocol.message_date import sent_at

    headers = one.message.header, other.message.header
    if headers[0].get("session") == headers[1].get("session"):
        sent = sent_at(headers[0]), sent_at(headers[1])
        if sent[0] is not None and sent[1] is not None:
            return sent[1] - sent[0]
    return other.arrived_at - one.arrived_at
