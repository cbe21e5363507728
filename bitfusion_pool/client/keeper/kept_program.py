"""The program under a lease over the network, as its keeper has it: told to end, killed if it does not."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.keeper.life_pipe import is_held, kill_holders
from bitfusion_pool.ledger.liveness import clock

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

SIGTERM_S = 2.0  # a program has to end by itself where nobody waits for its GPUs


class KeptProgram:
    """Made by the keeper. `life` is the writing end of the life pipe.

    Attributes:
        kill_at: When it is killed, by `clock`; None unless it was told to end.
        has_ended: Whether the wrapper says so; what it has left behind keeps the lease.
    """

    def __init__(self, life: int) -> None:
        self._life = life
        self._wrapper_pid = os.getppid()
        self._pidfd = -1  # a wrapper that is killed may not have told it
        self.kill_at: float | None = None
        self.has_ended = False

    @property
    def is_held(self) -> bool:
        """Whether a process lives that could use the lease's GPUs."""
        return is_held(self._life)

    def started(self, pidfd: int) -> None:
        """The wrapper has started it."""
        self._pidfd = pidfd
        if self.kill_at is not None:
            self._kill()  # the lease was over before it started

    def end(self, patience_s: float) -> None:
        """Tell it to end; it is killed if it does not in time."""
        self.kill_at = clock() + patience_s
        self._signal(15)

    def kill_if_due(self, now: float) -> None:
        """Kill it, and again after a while, with all that it has left behind."""
        if self.kill_at is not None and now >= self.kill_at:
            self._kill()
            self.kill_at = now + SIGTERM_S

    def _kill(self) -> None:
        self._signal(9)
        kill_holders(self._life, self._wrapper_pid)

    def _signal(self, number: int) -> None:
        if self._pidfd >= 0:
            try:
                _signal.pidfd_send_signal(self._pidfd, number)
            except OSError:
                pass  # it has ended
