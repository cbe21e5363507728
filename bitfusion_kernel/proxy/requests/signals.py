"""Signals that are sent to the proxy: they mean the kernel, whose process Jupyter takes it for."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle

END_PATIENCE = 2.0
"""Seconds for the kernel's own handler of SIGTERM; jupyter_client sends SIGKILL after 2.5 s."""

_ENDING = (signal.SIGTERM, signal.SIGHUP)

_LEFT = {
    *(signal.SIGKILL, signal.SIGSTOP),  # nobody can catch them
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS),  # the proxy's own faults
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGTTIN, signal.SIGTTOU),  # its children, pipes, terminal
}


class Signals:
    """The proxy has one.

    Args:
        loop: Delivers them, and has a timer.
        lifecycle: Tells whether there is a kernel, and is told to end.
        scheduler: Takes a wait back that ends with the proxy.
        interrupt: What SIGINT does.
        signal_kernel: Sends the kernel and its children a signal.
    """

    def __init__(
        self,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        scheduler: CellScheduler,
        *,
        interrupt: Callable[[], None],
        signal_kernel: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._lifecycle = lifecycle
        self._scheduler = scheduler
        self._interrupt = interrupt
        self._signal_kernel = signal_kernel
        self._ends = False

    def watch(self) -> None:
        """Serve them from now on; what Jupyter was started to ignore (`nohup`) stays ignored."""
        caught = signal.valid_signals() - _LEFT
        ignored = {each for each in caught if signal.getsignal(each) is signal.SIG_IGN} - {signal.SIGINT}
        self._loop.on_signals(tuple(caught - ignored), self._on_signal)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self._interrupt()
        elif self._lifecycle.connected:
            self._relay(number)
        elif number in _ENDING:
            self._end(number)

    def _relay(self, number: int) -> None:
        """The handler that a cell has set runs. A kernel that is told to end gets some time for it."""
        self._signal_kernel(number)
        if number in _ENDING and not self._ends:  # the second of two gives no more time
            self._ends = True
            self._lifecycle.relay_shutdown()
            self._loop.set_timer("end", time.monotonic() + END_PATIENCE, lambda: self._end(number))

    def _end(self, number: int) -> None:
        self._scheduler.stop_waiting()
        self._lifecycle.end(128 + number)
