"""The display of a wait for GPUs in the cell that waits: shown, kept up to date, taken away.

The wait belongs to the kernel, the display to one cell: a wait begun by `acquire = start` or by a debugger
has no cell until one arrives. What the display says is made by `gpu.waiting_notice`.

Beside text and HTML it has the kernel's published state. JupyterLab's part shows the wait from that as it is
now, also when nobody can update the display any more: after a reload, in a second browser, in a saved file.
Other clients don't know that type, and pass over it.

papermill, nbconvert and `jupyter execute` show no displays while they run, but the kernel's own stderr: where
nobody can be asked for input, a line there says once a minute what is waited for. Nothing of it is saved.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition

SHOW_AFTER = 0.3
"""Seconds before a wait is shown; shorter waits would only flicker."""

SHOW_SILENT_WAIT_AFTER = 1.0
"""The same for a client that has not said that it waits: it may only be slow to answer."""

UPDATE_EVERY = 1.0
"""Seconds between updates, for the elapsed time."""


LOG_AFTER = 1.0
"""Seconds before a wait that nobody watches is told on stderr."""

LOG_EVERY = 60.0
"""Seconds between two such lines."""


class Waits(Protocol):
    """What has the wait that is shown."""

    acquisition: Acquisition | None


class WaitDisplay:
    """Used for each wait of `waits` in turn. `busy` has been said for the cell.

    Args:
        loop: Has the timer.
        waits: What has the wait.
        publisher: Shows it.
        state: The kernel's published state; None where the wait is not what that tells.
        name: The timer's.
    """

    def __init__(
        self,
        loop: EventLoop,
        waits: Waits,
        publisher: Publisher,
        state: Callable[[], dict[str, Any]] | None,
        name: str = "wait display",
    ) -> None:
        self._loop = loop
        self._waits = waits
        self._publisher = publisher
        self._state = state
        self._timer = name
        self.cell: QueuedRequest | None = None
        """The cell that waits, whether or not the display is shown yet."""
        self._display_id = ""
        self._since = 0.0
        self._asked_at = 0.0  # the same moment, in seconds since the epoch
        self._shown = False
        self._log_at = 0.0

    def show_in(self, cell: QueuedRequest) -> None:
        """From now on the wait is shown in this cell, unless it is over very soon or shown in another."""
        if self.cell is not None:
            return
        self.cell = cell
        self._publisher.stay_busy_with(cell.message.header)
        self._display_id = f"bitfusion-wait-{os.urandom(8).hex()}"
        self._since, self._asked_at = time.monotonic(), time.time()
        self._shown = False
        self._log_at = self._since + LOG_AFTER
        self._loop.set_timer(self._timer, self._since + SHOW_AFTER, self._show)

    @property
    def waited(self) -> float | None:
        """Seconds for which a cell has waited for a GPU; None if no cell waits."""
        return None if self.cell is None else time.monotonic() - self._since

    @property
    def unattended(self) -> bool:
        """Whether a cell waits that nobody watches, but perhaps a tool that limits its time."""
        return self.cell is not None and self.cell.is_unattended

    def refresh(self) -> None:
        """The queue position has changed: show it at once, unless the wait is too young to be shown."""
        if self.waited is not None and self.waited >= SHOW_AFTER:
            self._show()

    def _show(self) -> None:
        acquisition = self._waits.acquisition
        now = time.monotonic()
        self._loop.set_timer(self._timer, now + UPDATE_EVERY, self._show)
        if self.cell is None or acquisition is None:
            return
        if self.cell.is_unattended and now >= self._log_at:
            self._log(acquisition, now)
        if not self._shown:
            silent_until = self._since + SHOW_SILENT_WAIT_AFTER
            if acquisition.queue is None and now < silent_until:
                self._loop.set_timer(self._timer, silent_until, self._show)
                return
            if acquisition.granted:
                return  # a wait that is over before it was shown would only flicker
        from bitfusion_kernel.gpu import waiting_notice

        waited, unattended = now - self._since, self.cell.is_unattended
        data: dict[str, Any] = {
            **waiting_notice.render(acquisition, waited, self._asked_at, time.time(), unattended=unattended)
        }
        if self._state is not None:
            from bitfusion_client.kernel_state import states

            data[states.MIME_TYPE] = self._state()
        self._publisher.display(data, self._display_id, self.cell.message.header, update=self._shown)
        self._shown = True

    def _log(self, acquisition: Acquisition, now: float) -> None:
        from bitfusion_kernel.gpu import time_limits
        from bitfusion_kernel.proxy.jupyter.jupyter_log import write_line

        self._log_at = now + LOG_EVERY
        write_line(f"bitfusion_kernel: {time_limits.cell_waits(acquisition, now - self._since)}")

    def end(self) -> QueuedRequest | None:
        """Leave nothing of the wait in the notebook, and never touch the display again.

        Returns:
            The cell that waited.
        """
        self._loop.cancel_timer(self._timer)
        self._publisher.stay_busy_with(None)
        cell, self.cell = self.cell, None
        if cell is not None and self._shown:
            self._publisher.clear(cell.message.header)
        self._shown = False
        return cell
