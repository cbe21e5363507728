"""Watches a kernel that runs, warns in the notebook and gives its GPUs back when nothing works any more.

What is decided when, and in which words, is `gpu.idle_release`; here it is told what happens, and its warning
is shown in the cell that ran last. Where the setting `idle_release` is off nothing is watched.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bitfusion_kernel.gpu.idle_release import IdleRelease, Step, Work
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestsInKernel
    from bitfusion_kernel.proxy.give_back import GiveBack
    from bitfusion_kernel.proxy.kernel.kernel_link import KernelLink

REDRAW_EVERY = 10.0
"""Seconds between updates of the time left."""

NOT_COUNTED = {"msg_type": "kernel_info_request"}
"""For displays, in place of the cell's own type in what they answer to: jupyter_server counts what follows a
cell as activity, so a culler would begin anew with each update. Clients look at the id."""

TELL_FROM = 1.0
"""Seconds by which the time of the release must have moved to be told: output may come all the time."""

HEAR_AFTER = 5.0
"""Seconds without work after which output is listened for: cells that follow each other cost nothing."""

_TIMER, _HEAR_TIMER = "idle", "idle: hear output"


class IdleWatch:
    """One kernel's, from its connection to its end.

    Args:
        after: The setting, in seconds, not 0.
        loop: Has a timer.
        in_kernel: What it runs.
        link: Its output, where a thread in the background may print.
        publisher: Shows the warning.
        give_back: Does it.
        watch_processes: Has the launcher look at what computes, every so many seconds; 0 ends that.
        on_release_at: Called when `release_at` has changed.
    """

    def __init__(
        self,
        after: float,
        loop: EventLoop,
        in_kernel: RequestsInKernel,
        link: KernelLink,
        publisher: Publisher,
        give_back: GiveBack,
        watch_processes: Callable[[float], None],
        on_release_at: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._in_kernel = in_kernel
        self._link = link
        self._publisher = publisher
        self._give_back = give_back
        self._watch_processes = watch_processes
        self._idle = IdleRelease(after, time.monotonic())
        self._on_release_at = on_release_at
        self.release_at: float | None = None
        """When the GPUs are given back unless something works, in seconds since the epoch, within a second;
        None while something does."""
        self._looks = 0.0
        self._hears = False
        self._last_cell: QueuedRequest | None = None
        self._shown_in: QueuedRequest | None = None
        self._display_id = ""
        self.on_cells()

    @property
    def status(self) -> str:
        """One line for `%bitfusion`."""
        return self._idle.status(time.monotonic(), time.time())

    def on_cells(self) -> None:
        """The kernel has been sent a cell, or has answered one."""
        shells, now = self._in_kernel.shells, time.monotonic()
        works = None if not shells else Work.CELL if None in shells else Work.SUBSHELL
        running = self._in_kernel.running()
        if running:
            self._last_cell = running[0]
        self._go_on(void=self._idle.in_work(works, now))

    def touched(self, work: str) -> None:
        """Something has worked just now; `work` is the name of a member of `Work`."""
        self._go_on(void=self._idle.touched(Work[work], time.monotonic()))

    def close(self) -> None:
        """The kernel is gone, or the proxy ends."""
        self._loop.cancel_timer(_TIMER)
        self._hear(False)

    def _go_on(self, *, void: bool) -> None:
        if void:
            self._show(self._idle.kept(time.time()))
            self._display_id = ""
        self._set_timer()

    def _set_timer(self) -> None:
        if (looks := self._idle.look_every) != self._looks:
            self._looks = looks
            self._watch_processes(looks)
        next_at = self._idle.next_at
        self._note_release(None if next_at is None else self._idle.release_at)
        self._hear(next_at is not None)
        if next_at is None:
            self._loop.cancel_timer(_TIMER)
            return
        if self._display_id:
            next_at = min(next_at, time.monotonic() + REDRAW_EVERY)
        self._loop.set_timer(_TIMER, next_at, self._step)

    def _note_release(self, monotonic: float | None) -> None:
        before = self.release_at
        at = None if monotonic is None else round(time.time() + monotonic - time.monotonic(), 3)
        if at is None or before is None or abs(at - before) >= TELL_FROM:
            self.release_at = at
            if at != before:
                self._on_release_at()

    def _hear(self, wanted: bool) -> None:
        if wanted is self._hears:
            return
        self._hears = wanted
        if wanted:
            self._loop.set_timer(_HEAR_TIMER, time.monotonic() + HEAR_AFTER, self._begin_to_hear)
        else:
            self._loop.cancel_timer(_HEAR_TIMER)
            self._link.hear_output(None)

    def _begin_to_hear(self) -> None:
        self._link.hear_output(lambda: self.touched("OUTPUT"))

    def _step(self) -> None:
        now, clock = time.monotonic(), time.time()
        step = self._idle.step(now)
        if step is Step.RELEASE:
            self.close()
            self._give_back.begin(lambda: self._tell_released(now, clock))
            return
        if step is Step.WARN or self._display_id:
            self._show(self._idle.warning(now, clock))
        self._set_timer()

    def _tell_released(self, now: float, clock: float) -> None:
        self._show(self._idle.released(now, clock))

    def _show(self, data: dict[str, str]) -> None:
        update = bool(self._display_id)
        if not update:
            self._display_id = f"bitfusion-idle-{os.urandom(8).hex()}"
            self._shown_in = self._last_cell
        if self._shown_in is not None:
            header = self._shown_in.message.header | NOT_COUNTED
            self._publisher.display(data, self._display_id, header, update=update)
