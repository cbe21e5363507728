"""The start of a kernel that is ready only with its GPU: `acquire = start_and_wait`.

For Jupyter's clients a start ends with the first reply to `kernel_info_request`, and has a limit of its own.
Here that request is held for the kernel, so that the wait for a GPU counts for the start and not for the
first cell. It is for runs that nobody watches: JupyterLab and VS Code give up after a minute or two.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError

READY_REQUEST = "kernel_info_request"

TELL_AFTER = 1.0
"""Seconds before the log tells of the wait; the bitfusion client may have said by then what it waits for."""

TELL_EVERY = 60.0
"""Seconds between two lines of that."""

_TIMER = "start-up wait"


class StartUpWait:
    """The proxy has one. It is over from the beginning unless `lasts`."""

    def __init__(self, loop: EventLoop, lifecycle: KernelLifecycle, *, lasts: bool) -> None:
        self._loop = loop
        self._lifecycle = lifecycle
        self.lasts = lasts
        """Whether the kernel is not ready yet, because it waits for its GPU."""
        if lasts:
            loop.set_timer(_TIMER, time.monotonic() + TELL_AFTER, self._tell)

    def holds(self, message_type: str) -> bool:
        """Whether a request on shell has to wait until the kernel is ready."""
        return self.lasts and message_type == READY_REQUEST

    def end(self) -> bool:
        """The kernel is there, or does not come; whether the start lasted until now."""
        lasted, self.lasts = self.lasts, False
        self._loop.cancel_timer(_TIMER)
        return lasted

    def _tell(self) -> None:
        self._loop.set_timer(_TIMER, time.monotonic() + TELL_EVERY, self._tell)
        acquisition = self._lifecycle.acquisition
        if acquisition is not None:
            from bitfusion_kernel.gpu import time_limits
            from bitfusion_kernel.proxy.jupyter.jupyter_log import write_line

            write_line(f"bitfusion_kernel: {time_limits.start_waits(acquisition)}")

    def why_given_up(self, display: WaitDisplay) -> BitfusionError | None:
        """What a cell shows whose tool shuts the kernel down while it waits. Jupyter's log is told here.

        A tool whose time limit has ended says nothing of what was waited for.
        """
        acquisition, waited = self._lifecycle.acquisition, display.waited
        if acquisition is None or not (self.lasts or display.unattended):
            return None
        from bitfusion_kernel.gpu import time_limits
        from bitfusion_kernel.proxy.jupyter.jupyter_log import write_line

        if self.lasts or waited is None:
            write_line(f"bitfusion_kernel: {time_limits.start_given_up(acquisition, time.monotonic())}")
            return None
        write_line(f"bitfusion_kernel: {time_limits.cell_given_up(acquisition, waited)}")
        return time_limits.error_of_cell_given_up(acquisition, waited)
