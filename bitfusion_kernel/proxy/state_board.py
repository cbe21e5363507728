"""The one source of the kernel's published state: answers it, tells watchers each change, keeps the file.

Nothing here delays a cell: whatever may have changed something only says so (`touch`), the state is made a
little later, and what was so for less than that time is told to nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitfusion_client.kernel_state import states
from bitfusion_kernel.proxy import kernel_state

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.proxy.cells.request_queue import RequestsInKernel
    from bitfusion_kernel.proxy.event_loop import EventLoop
    from bitfusion_kernel.proxy.kernel_state import Asked
    from bitfusion_kernel.proxy.lifecycle import KernelLifecycle

Json = dict[str, Any]

SETTLE = 0.03
"""Seconds between a change and its publication: most cells and their successors come in less."""

TELL_EVERY = 0.1
"""Seconds between two publications: ten a second at most, of which each is the newest."""

WRITE_EVERY = 1.0
"""Seconds between two writes of the file, unless the state's name has changed."""

_TIMER = "state"
_FILE_TIMER = "state file"


class StateBoard:
    """The proxy has one.

    Args:
        loop: For the timer.
        lifecycle: Owns what is so; whoever hears of its changes calls `touch`.
        in_kernel: Whether code runs.
        asked_next: What the next cell asks for; None where settings are wrong. It reads them, so it is asked
            only for somebody who wants to know.
        kept: Whether what there is is kept for the next proxy when this one ends.
        notebook: The notebook's name, or empty.
        kernel_id: See `proxy_socket.kernel_id`.
    """

    def __init__(
        self,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        in_kernel: RequestsInKernel,
        asked_next: Callable[[], Asked | None],
        kept: Callable[[], bool],
        notebook: str,
        kernel_id: str | None,
    ) -> None:
        self._loop = loop
        self._lifecycle = lifecycle
        self._in_kernel = in_kernel
        self._asked_next = asked_next
        self._kept = kept
        self._notebook = notebook
        self._kernel_id = kernel_id
        self._name, self._since = "", 0.0
        self._works, self._worked_at = False, 0.0
        self._acquisition: Acquisition | None = None
        self._asked_at: float | None = None
        self._granted_at: float | None = None
        self._watchers: dict[object, Callable[[Json], None]] = {}
        self._told: Json = {}
        self._told_at = 0.0
        self._folder = ""
        self._written: Json = {}
        self._written_at = 0.0
        self._pending = False
        self._closed = False
        self.idle_release_at: Callable[[], float | None] = lambda: None
        """When an idle kernel gives its GPUs back, in seconds since the epoch; None: not by itself."""
        self._note()
        in_kernel.on_change = self.on_work

    # -- what changes ------------------------------------------------------------------------------

    def touch(self) -> None:
        """Something may have changed: it is looked at soon."""
        self._note()
        self._publish_soon()

    def _publish_soon(self) -> None:
        if not self._pending and not self._closed:
            self._pending = True
            when = max(time.monotonic() + SETTLE, self._told_at + TELL_EVERY)
            self._loop.set_timer(_TIMER, when, self._publish)

    def on_work(self) -> None:
        """The kernel was sent something, or has answered: of every cell, so only the time is kept."""
        works = bool(self._in_kernel.shells)
        if works is not self._works:
            self._works, self._worked_at = works, time.time()
            self._publish_soon()

    def _note(self) -> None:
        """Keep when it was: monotonic times are of no use to others, and stand while a machine sleeps."""
        acquisition = self._lifecycle.acquisition
        if acquisition is not self._acquisition:
            self._acquisition, self._asked_at, self._granted_at = acquisition, None, None
        if acquisition is not None:
            if self._asked_at is None:
                self._asked_at = _epoch(acquisition.asked_at)
            if self._granted_at is None and acquisition.held_since is not None:
                self._granted_at = _epoch(acquisition.held_since)
        name = kernel_state.name(self._lifecycle, works=self._works, kept=self._kept())
        by_work = {name, self._name} <= {states.RUNNING, states.IDLE}
        if by_work and self._worked_at > self._since:
            self._since = round(self._worked_at, 3)
        elif name != self._name:
            self._since = round(time.time(), 3)
        self._name = name

    # -- who is told -------------------------------------------------------------------------------

    def look(self) -> Json:
        """The whole state now."""
        self._note()
        acquisition = self._acquisition
        if acquisition is None:
            asked = self._asked_next()
        else:
            left = acquisition.takes_what_is_left and acquisition.waits_for_pod
            asked = kernel_state.Asked(acquisition.request, left, acquisition.asked_for)
        at = self.idle_release_at() if self._name == states.IDLE else None
        return self._headline() | kernel_state.details(
            acquisition, asked, self._kernel_id, self._asked_at, self._granted_at, at
        )

    def watch(self, watcher: object, tell: Callable[[Json], None]) -> None:
        """Have `tell` called with the whole state now and after each change, until `forget`."""
        if not self._watchers:
            self._told = self.look()
        self._watchers[watcher] = tell
        tell(self._told)

    def forget(self, watcher: object) -> None:
        """Tell it no more."""
        self._watchers.pop(watcher, None)

    def write_in(self, folder: str) -> None:
        """Keep the file in this folder, from now on."""
        if folder != self._folder:
            self._folder, self._written = folder, {}
        self.touch()

    def close(self) -> None:
        """The proxy ends: tell the last state at once, and no other."""
        if not self._closed:
            self._publish()
        self._closed = True
        self._loop.cancel_timer(_TIMER)
        self._loop.cancel_timer(_FILE_TIMER)
        self._watchers.clear()

    # -- publication -------------------------------------------------------------------------------

    def _publish(self) -> None:
        self._pending = False
        self._told_at = time.monotonic()
        if self._watchers and (told := self.look()) != self._told:
            self._told = told
            for tell in list(self._watchers.values()):
                tell(told)
        self._write()

    def _write(self) -> None:
        self._note()
        told = self._headline()
        if not self._folder or told == self._written:
            return
        due = self._written_at + WRITE_EVERY
        if told["state"] == self._written.get("state") and time.monotonic() < due:
            self._loop.set_timer(_FILE_TIMER, due, self._write)
        else:
            self._written_at = time.monotonic()
            if states.write(self._folder, told):
                self._written = told

    def _headline(self) -> Json:
        return kernel_state.headline(self._name, self._since, self._notebook)


def _epoch(monotonic: float) -> float:
    """A recent time of `time.monotonic()` in seconds since the epoch."""
    return round(time.time() - (time.monotonic() - monotonic), 3)
