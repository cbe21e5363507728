"""The `%bitfusion` cells that run in the proxy now: one in each shell, and an aside beside one that waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfusion_kernel.proxy.cells.command_cell import CommandCell
    from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest


class RunningCommands:
    """The scheduler has one. It adds a second cell to a shell only behind one that waits for a GPU."""

    def __init__(self) -> None:
        self._cells: list[CommandCell] = []

    def __bool__(self) -> bool:
        return bool(self._cells)

    def __iter__(self) -> Iterator[CommandCell]:
        """All, also those that end while the caller looks at them."""
        return iter(list(self._cells))

    def add(self, commands: CommandCell) -> None:
        """A cell begins."""
        self._cells.append(commands)

    def remove(self, cell: QueuedRequest) -> None:
        """A cell has ended."""
        self._cells = [commands for commands in self._cells if commands.cell is not cell]

    def of(self, cell: QueuedRequest) -> CommandCell | None:
        """What runs the lines of this cell; None if it is no `%bitfusion` cell that runs."""
        return next((commands for commands in self._cells if commands.cell is cell), None)

    def run_in(self, subshell: str | None) -> bool:
        """Whether a shell runs one, or has one that waits for a GPU."""
        return any(commands.cell.subshell == subshell for commands in self._cells)

    def last_in(self, subshell: str | None) -> QueuedRequest | None:
        """The cell of a shell that came last."""
        cells = (commands.cell for commands in reversed(self._cells))
        return next((cell for cell in cells if cell.subshell == subshell), None)

    @property
    def shells_at_work(self) -> set[str | None]:
        """The shells that run one that does not wait for a GPU."""
        return {commands.cell.subshell for commands in self._cells if not commands.waits_for_gpu}

    def interrupt(self) -> bool:
        """Interrupt the bitfusion client wherever one runs; whether one did in the main shell."""
        interrupted = {commands.cell.subshell for commands in list(self._cells) if commands.interrupt()}
        return None in interrupted
