"""Interrupts for the kernel, kept back until the cell that they are meant for can take them.

ipykernel ignores SIGINT but for the time in which it serves a request. A cell that it has received and not
begun would therefore run on after an interrupt, and one that hits the first moments of a request ends it
without a reply. So an interrupt is sent when the kernel has taken SIGINT for a moment (`SETTLED`) while the
same cell was at its head.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from bitfusion_kernel.protocol.wire import Message
from bitfusion_kernel.proxy.event_loop import EventLoop

LOOK_EVERY = 0.01
"""Seconds between looks at a kernel that does not take the interrupt yet."""

SETTLED = 0.05
"""Seconds for which the cell must have run."""

LONGEST_SETTLING = 0.5
"""Seconds after the kernel has first taken SIGINT when it is sent although one short cell follows another:
Run All must stop. The reply that an interrupt between two cells loses blocks nothing."""

PATIENCE = 10.0
"""Seconds after which it is sent whatever the kernel does: a cell may ignore SIGINT by itself."""

_TIMER = "kernel interrupt"


class KernelInterrupt:
    """The proxy has one, for as long as its kernel runs.

    Args:
        loop: For a timer.
        deliver: Interrupts the kernel; sees to the reply if it is given a client's request.
        running_cell: Id of the cell that the kernel's main shell runs or is about to run; None without one.
        takes_interrupts: Whether the kernel does anything on SIGINT now.
        answer: Replies to a client's request that the kernel does not get.
    """

    def __init__(
        self,
        loop: EventLoop,
        deliver: Callable[[Message | None], None],
        *,
        running_cell: Callable[[], str | None],
        takes_interrupts: Callable[[], bool],
        answer: Callable[[Message], None],
    ) -> None:
        self._loop = loop
        self._hand_over = deliver
        self._running_cell = running_cell
        self._takes_interrupts = takes_interrupts
        self._answer = answer
        self._request: Message | None = None
        self._pending_since: float | None = None
        self._taken_since: float | None = None
        self._settling: tuple[str, float] | None = None

    def send(self, request: Message | None = None) -> None:
        """Interrupt the kernel when it can take it; `request` is a client's, None the proxy's own."""
        if self._pending_since is not None:
            # One is enough: a second one at the same moment would hit the handling of the first.
            if request is not None and self._request is None:
                self._request = request
            elif request is not None:
                self._answer(request)
            return
        self._request, self._pending_since = request, time.monotonic()
        self._taken_since = self._settling = None
        self._look()

    def flush(self) -> None:
        """Send what is kept back now: the kernel is about to be shut down."""
        if self._pending_since is not None:
            self._deliver()

    def _look(self) -> None:
        if self._is_time(time.monotonic()):
            self._deliver()
        else:
            self._loop.set_timer(_TIMER, time.monotonic() + LOOK_EVERY, self._look)

    def _is_time(self, now: float) -> bool:
        assert self._pending_since is not None
        cell = self._running_cell()
        if cell is None or now - self._pending_since >= PATIENCE:
            return True
        if not self._takes_interrupts():
            self._settling = None
            return False
        if self._taken_since is None:
            self._taken_since = now
        if self._settling is None or self._settling[0] != cell:
            self._settling = (cell, now)
        return now - self._settling[1] >= SETTLED or now - self._taken_since >= LONGEST_SETTLING

    def _deliver(self) -> None:
        self._loop.cancel_timer(_TIMER)
        request, self._request, self._pending_since = self._request, None, None
        self._hand_over(request)


def takes_sigint(pid: int, proc: str = "/proc") -> bool:
    """Whether a process does anything on SIGINT now; True if that cannot be read."""
    try:
        with open(f"{proc}/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"SigIgn:"):
                    return not int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1
    except (OSError, ValueError, IndexError):
        pass
    return True
