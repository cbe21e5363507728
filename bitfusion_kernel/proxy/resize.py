"""Another size for a kernel that runs: its GPUs are asked for while it keeps the ones that it has.

Used by `%bitfusion request --now` where there may be room for both. What comes of it is told to the command
cell, which then has the old ones given back: the kernel of the new lease takes the place of the old one. If
nothing comes, not in time, or not at all, the kernel goes on with what it has, variables and all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bitfusion_client.clock_time import elapsed_text
from bitfusion_client.errors import BitfusionError, UsageError
from bitfusion_kernel.gpu.acquisition import BESIDE_LIMIT
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.gpu.kernel_starter import KernelStarter
    from bitfusion_kernel.processes.messages import GrantedEvent, OutputEvent, WrapperExitedEvent
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest

    OnEnd = Callable[[BitfusionError | None], None]


class SizeKept(BitfusionError):
    """Nothing came of another size."""

    headline = "This kernel keeps the GPUs that it has, and its variables."
    next_step = (
        "try again later; or give these back and wait for the others: run `%bitfusion release`, the same "
        "request without --now, and a cell."
    )


class Resize:
    """The proxy has one.

    Args:
        loop: For the time that the cell shows.
        supervisor: Ends what is not wanted any more.
        starter: Asks, and starts the next kernel on what has come.
        publisher: Shows the wait in the cell.
    """

    def __init__(
        self, loop: EventLoop, supervisor: SupervisorLink, starter: KernelStarter, publisher: Publisher
    ) -> None:
        self.acquisition: Acquisition | None = None
        """What is asked for, until it has come or ended."""
        self.wrapper_pid: int | None = None
        """Of the `bitfusion run` beside, while there is one."""
        self._supervisor = supervisor
        self._starter = starter
        self._display = WaitDisplay(loop, self, publisher, state=None, name="resize")
        self._on_end: OnEnd | None = None
        self._cancelled = ""

    def start(self, request: GpuRequest, kept: str, cell: QueuedRequest | None, on_end: OnEnd) -> None:
        """Ask for this size; `kept` is what the kernel has meanwhile, as text. A cell shows the wait.

        `on_end` is called with None when the GPUs are there, and wait for those of the kernel to be given
        back; else with what the cell is to be told.

        Raises:
            BitfusionError: It can't even be asked for.
        """
        if self._on_end is not None or self.wrapper_pid is not None:
            raise UsageError(
                "this kernel asks for another size already", "`%bitfusion cancel` ends that; then try again."
            )
        self.acquisition = self._starter.start_beside(request, BESIDE_LIMIT)
        self.acquisition.kept = kept
        self._on_end, self._cancelled = on_end, ""
        if cell is not None:
            self._display.show_in(cell)

    def cancel(self, how: str) -> bool:
        """The wait ends because a person says so; whether there was one."""
        if self._on_end is None:
            return False
        self._cancelled = how
        self._supervisor.drop()
        return True

    # -- what the supervisor tells ------------------------------------------------------------------

    def on_started(self, pid: int) -> None:
        """The `bitfusion run` beside runs."""
        self.wrapper_pid = pid

    def on_output(self, event: OutputEvent, clock: float) -> None:
        """It, or the kernel that it has started, says a line."""
        acquisition = self.acquisition or self._starter.beside
        if acquisition is not None and acquisition.number == event.beside:
            queue = acquisition.queue
            acquisition.on_line(event.text, clock, event.stream)
            if acquisition.queue is not queue:
                self._display.refresh()

    def on_granted(self, event: GrantedEvent) -> None:
        """It has GPUs: from here on the next kernel starts on them."""
        if self.acquisition is not None and self.acquisition.number == event.number and not self._cancelled:
            self._starter.beside = self.acquisition
            self._finish(None)

    def on_taken(self) -> None:
        """It has taken the place of the one that has ended, and is nothing special any more."""
        self.wrapper_pid = None

    def on_exited(self, event: WrapperExitedEvent) -> None:
        """A `bitfusion run` that is not the kernel's has ended."""
        self.wrapper_pid = None
        beside = self._starter.beside
        if beside is not None and beside.number == event.number:
            self._starter.beside = None  # the next cell asks anew
        acquisition = self.acquisition
        if acquisition is not None and acquisition.number == event.number:
            acquisition.wrapper_status = event.status
            self._finish(self._why_not(acquisition))

    def _why_not(self, acquisition: Acquisition) -> BitfusionError:
        waited = elapsed_text(time.monotonic() - acquisition.asked_at)
        if self._cancelled:
            return SizeKept(acquisition.asked_for, f"{self._cancelled} after {waited} of waiting")
        if time.monotonic() - acquisition.asked_at >= BESIDE_LIMIT:
            return SizeKept(acquisition.asked_for, f"not to be had within {waited}{_place(acquisition)}")
        error = acquisition.why_it_ended()
        return SizeKept(acquisition.asked_for, error.answered or error.headline)

    def _finish(self, error: BitfusionError | None) -> None:
        self.acquisition = None
        self._display.end()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(error)


def _place(acquisition: Acquisition) -> str:
    queue = acquisition.queue
    if queue is None:
        return ""
    standing = f"{queue.standing} at last" if queue.standing else ""
    told = "; ".join(filter(None, [standing, *(f"held by {who}" for who in queue.held_by)])) or queue.why
    return f": {told}" if told else ""
