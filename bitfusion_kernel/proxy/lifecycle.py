"""The state of the kernel, from no kernel to the end of the proxy: the one owner of `KernelState`. Pure.

Whoever wants to know whether a kernel runs, or whether one has been asked for, asks the `KernelLifecycle`;
whoever learns that something has happened tells it. Each event is one method, a column of `TABLE`; each state
is a row. So a state that is added (a lease that was given back, parked, idle) is one member of `KernelState`
and one row, which says what each event means in it; what leads there and back (giving back, joining again) is
one method and one column. Nothing else decides what an event means.

A wait that ends without a kernel goes back to NOT_REQUESTED, and the next cell asks again. A kernel that dies
ends the proxy, as a plain kernel's process would end, so that Jupyter's own restart works.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.processes.messages import LaunchedEvent


class KernelState(enum.Enum):
    """What happens to a request depends on this alone."""

    NOT_REQUESTED = "not requested"
    """No `bitfusion run` exists; the next cell asks for a GPU."""

    WAITING = "waiting"
    """`bitfusion run` waits in the pool's queue."""

    STARTING = "starting"
    """The GPUs are granted, launcher and kernel have been started; the kernel does not answer yet."""

    RUNNING = "running"
    """The kernel answers: requests go to it."""

    SHUTTING_DOWN = "shutting down"
    """The kernel runs and has been sent a shutdown request: its end is no failure."""

    RELEASING = "releasing"
    """The GPUs are being given back; the kernel that ran on them ends, the proxy stays."""

    CANCELLING = "cancelling"
    """The wait was cancelled; its `bitfusion run` still has to end before another can be started."""

    OVER = "over"
    """The proxy ends; `KernelLifecycle.exit_status` is set."""


TABLE = """
state          request  go_on    launched  connected  cancel      release    relay_shutdown  wrapper_exited  kernel_lost
NOT_REQUESTED  WAITING  WAITING  =         error      error       error      error           =               error
WAITING        =        error    STARTING  error      CANCELLING  error      error           NOT_REQUESTED   error
STARTING       =        error    =         RUNNING    CANCELLING  error      error           NOT_REQUESTED   error
RUNNING        =        error    =         error      error       RELEASING  SHUTTING_DOWN   OVER            OVER
SHUTTING_DOWN  =        error    =         error      error       error      =               OVER            OVER
RELEASING      =        error    =         error      error       =          error           NOT_REQUESTED   error
CANCELLING     =        error    =         error      =           error      error           NOT_REQUESTED   error
OVER           =        error    =         error      error       error      error           =               =
"""  # noqa: E501 - one row a line
"""The state after each event. `=`: the event changes nothing; `error`: it raises IllegalTransition.

`kernel_exited` changes no state: `kernel_lost` follows, or the wrapper's end. `end` leads from every state to
OVER; the first exit status stands. A request that fails (no client, a wrong setting) raises its error and
leaves NOT_REQUESTED. A lease that a restart has kept is WAITING until its next kernel is launched.
"""

CONNECTED = (KernelState.RUNNING, KernelState.SHUTTING_DOWN)
"""The kernel answers, so requests are relayed to it."""


def _read(table: str) -> dict[tuple[KernelState, str], KernelState]:
    (_, *events), *rows = map(str.split, table.strip().splitlines())
    return {
        (KernelState[state], event): KernelState[state if after == "=" else after]
        for state, *row in rows
        for event, after in zip(events, row, strict=True)
        if after != "error"
    }


_AFTER = _read(TABLE)


class IllegalTransition(RuntimeError):
    """The proxy's own code has reported an event that cannot happen in this state: a defect."""


class KernelLifecycle:
    """The proxy has one.

    `start` starts `bitfusion run`; it raises BitfusionError if it can't be started. `check` raises one where
    nothing but `%bitfusion acquire` may ask for a GPU.
    """

    def __init__(self, start: Callable[[], Acquisition], check: Callable[[], None] = lambda: None) -> None:
        self._start = start
        self._check = check
        self._early_error: BitfusionError | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of the state."""
        self._state_now = KernelState.NOT_REQUESTED
        self.kernel_died = False
        """Whether a kernel that ran has ended by itself: a restarter will want its lease."""
        self.acquisition: Acquisition | None = None
        """The `bitfusion run` that waits or runs now; None only in NOT_REQUESTED, and in OVER after it."""
        self.last_acquisition: Acquisition | None = None
        """The one before, for its log."""
        self.exit_status: int | None = None
        """The proxy's exit status, once the state is OVER."""

    @property
    def _state(self) -> KernelState:
        return self._state_now

    @_state.setter
    def _state(self, state: KernelState) -> None:
        changes, self._state_now = state is not self._state_now, state
        if changes:
            self.on_change()

    # -- questions -------------------------------------------------------------------------------

    @property
    def state(self) -> KernelState:
        """The state now. Most callers ask one of the questions below instead."""
        return self._state

    @property
    def requested(self) -> bool:
        """Whether a `bitfusion run` exists, even one that only has to end."""
        return self.acquisition is not None

    @property
    def cancellable(self) -> bool:
        """Whether there is a wait that an interrupt can end."""
        return (self._state, "cancel") in _AFTER

    @property
    def connected(self) -> bool:
        """Whether the kernel answers, so that requests are relayed to it."""
        return self._state in CONNECTED

    @property
    def connected_soon(self) -> bool:
        """Whether the kernel answers or is about to."""
        return self._state in CONNECTED or self._state is KernelState.STARTING

    @property
    def over(self) -> bool:
        """Whether the proxy ends."""
        return self._state is KernelState.OVER

    # -- events ----------------------------------------------------------------------------------

    def request(self, *, told_to: bool = False) -> None:
        """Ask for a GPU and a kernel on it, unless that has been done.

        Args:
            told_to: Whether this is `%bitfusion acquire`, or a setting's word, and no cell or debugger.

        Raises:
            BitfusionError: They can't even be asked for, or an error was kept for this request.
        """
        if self._state is not KernelState.NOT_REQUESTED:
            return
        if not told_to:
            self._check()
        if self._early_error is not None:
            error, self._early_error = self._early_error, None
            raise error
        self.acquisition = self._start()
        self._state = self._after("request")

    def go_on(self, acquisition: Acquisition, *, wanted: bool) -> None:
        """A restart has kept this lease or place in the queue; unless `wanted` it is being given back."""
        self._state = self._after("go_on")
        self.acquisition = acquisition
        if not wanted:
            self.cancel()

    def request_early(self) -> None:
        """The same before anybody waits for it (`acquire = start`): an error is kept for `request`."""
        from bitfusion_client.errors import BitfusionError

        try:
            self.request(told_to=True)
        except BitfusionError as error:
            self.fail_next_request(error)

    def fail_next_request(self, error: BitfusionError) -> None:
        """Keep an error that nobody was there to be told: the next `request` raises it, once."""
        self._early_error = error

    def launched(self, event: LaunchedEvent, now: float) -> None:
        """The GPUs are granted and the launcher runs; `now` is `time.monotonic()`."""
        if self.acquisition is not None:
            self.acquisition.on_launched(event, now)
        self._state = self._after("launched")

    def kernel_connected(self) -> None:
        """The kernel answers on control and its output has been joined."""
        self._state = self._after("connected")

    def cancel(self) -> None:
        """The wait ends because the user has interrupted it."""
        self._state = self._after("cancel")

    def release(self) -> None:
        """The GPUs go back to the pool; whatever ran on them ends."""
        self._state = self._after("release")

    def relay_shutdown(self) -> None:
        """A shutdown request goes to the kernel, which answers it and ends."""
        self._state = self._after("relay_shutdown")

    def kernel_exited(self, status: int) -> None:
        """The kernel's process has ended; `status` as `os.waitstatus_to_exitcode` gives it."""
        if self.acquisition is not None:
            self.acquisition.kernel_status = status

    def wrapper_exited(self, status: int) -> None:
        """`bitfusion run` has ended, and with it whatever ran under it; `status` as above."""
        acquisition = self.acquisition
        if acquisition is None:
            return
        acquisition.wrapper_status = status
        if self.connected:
            self.kernel_lost()
        elif not self.over:
            self.last_acquisition, self.acquisition = acquisition, None
            self._state = self._after("wrapper_exited")

    def kernel_lost(self) -> None:
        """The kernel that ran runs no more. `exit_status` tells whether that was expected: 0 or 1."""
        if self._after("kernel_lost") is self._state:
            return
        assert self.acquisition is not None
        self.kernel_died = self._state is not KernelState.SHUTTING_DOWN
        self.end(1 if self.kernel_died and self.acquisition.kernel_status != 0 else 0)

    def end(self, exit_status: int) -> None:
        """The proxy ends: shutdown without a kernel, a signal, Jupyter or the supervisor are gone."""
        if self.exit_status is None:
            self.exit_status = exit_status
            self._state = KernelState.OVER

    def _after(self, event: str) -> KernelState:
        after = _AFTER.get((self._state, event))
        if after is None:
            raise IllegalTransition(f"{event} while {self._state.value}")
        return after
