"""What happens to the kernel and its `bitfusion run`: launched, connected, exited; the supervisor's death.

Each event is served by one method: the lifecycle changes its state first, then the other parts act on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitfusion_kernel.processes import reaper
from bitfusion_kernel.processes.messages import (
    Event,
    GrantedEvent,
    KernelExitedEvent,
    LaunchedEvent,
    OutputEvent,
    StartedEvent,
    WorkingEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.cells.outage_display import OutageDisplay
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.jupyter_log import write_line
from bitfusion_kernel.proxy.kernel.kernel_link import KernelLink
from bitfusion_kernel.proxy.lifecycle import CONNECTED, KernelLifecycle, KernelState
from bitfusion_kernel.proxy.requests.control_requests import ControlRequests
from bitfusion_kernel.proxy.requests.shell_requests import ShellRequests
from bitfusion_kernel.proxy.requests.start_up_wait import StartUpWait

if TYPE_CHECKING:
    from bitfusion_client.command.client_lines import Waiting
    from bitfusion_client.errors import BitfusionError
    from bitfusion_client.pod.oom_kills import OomKills
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.proxy.give_back import GiveBack
    from bitfusion_kernel.proxy.resize import Resize

LAST_OUTPUT_DELAY = 0.3
"""Seconds the wrapper of a dead kernel has to end, for its exit message and status, before the cell fails."""

LAST_WORDS_DELAY = 3.0
"""The same while its pool is out of reach: the wrapper then says whether it has ended the kernel for that."""

KEPT_IS_LOST = "What this kernel held before its restart was lost: its GPU is another one."


class KernelEvents:
    """Serves the supervisor's events, and the kernel's connection between them.

    `tell_hints` says in the cell that has waited what is odd in the settings, and what `tell_later` has been
    told; `on_working` is told that the kernel's processes compute.
    """

    def __init__(
        self,
        loop: EventLoop,
        supervisor: SupervisorLink,
        lifecycle: KernelLifecycle,
        link: KernelLink,
        shell: ShellRequests,
        control: ControlRequests,
        scheduler: CellScheduler,
        display: WaitDisplay,
        outage_display: OutageDisplay,
        start_up: StartUpWait,
        give_back: GiveBack,
        resize: Resize,
        tell_later: Callable[[str], None],
        tell_hints: Callable[[QueuedRequest], None],
        on_working: Callable[[], None],
    ) -> None:
        self._tell_later = tell_later
        self._tell_hints = tell_hints
        self._loop = loop
        self._supervisor = supervisor
        self._lifecycle = lifecycle
        self._link = link
        self._shell = shell
        self._control = control
        self._scheduler = scheduler
        self._display = display
        self._outage_display = outage_display
        self._start_up = start_up
        self._give_back = give_back
        self._resize = resize
        self._wrapper_pid: int | None = supervisor.kept.pid or None
        self._oom_kills: OomKills | None = None
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            StartedEvent: self._on_started,
            OutputEvent: self._on_output,
            GrantedEvent: resize.on_granted,
            LaunchedEvent: self._on_launched,
            KernelExitedEvent: self._on_kernel_exited,
            WrapperExitedEvent: self._on_wrapper_exited,
            WorkingEvent: lambda _: on_working(),
        }

    def on_readable(self) -> None:
        """Serve what the supervisor has reported, or its death."""
        for event in self._supervisor.events():
            handler = self._handlers.get(type(event))
            if handler is not None:
                handler(event)
        if self._supervisor.closed:
            self._loop.off(self._supervisor.fileno())
            self._on_supervisor_died()

    # -- before there is a kernel ------------------------------------------------------------------

    def _on_started(self, event: StartedEvent) -> None:
        if event.beside:
            self._resize.on_started(event.pid)
        else:
            self._wrapper_pid = event.pid
            self._resize.on_taken()

    def _on_output(self, event: OutputEvent) -> None:
        acquisition = self._lifecycle.acquisition
        if event.beside:
            self._resize.on_output(event, time.time())
            return
        if acquisition is None:
            return
        queue, outage = acquisition.queue, acquisition.outage
        if not acquisition.on_line(event.text, time.time(), event.stream):
            write_line(event.text)  # what the kernel has printed past IPython
        elif _news(acquisition.queue) != _news(queue):
            self._display.refresh()
        elif acquisition.outage is not outage:
            self._display.refresh()
            self._show_outage()

    def _on_launched(self, event: LaunchedEvent) -> None:
        self._lifecycle.launched(event, time.monotonic())
        acquisition = self._lifecycle.acquisition
        if self._lifecycle.state is KernelState.STARTING and acquisition is not None:
            assert acquisition.kernel_connection is not None
            self._link.open(acquisition.kernel_connection, self._on_joined)

    def _on_joined(self) -> None:
        """From here on the kernel answers. The display goes first, then what has waited is sent."""
        self._start_up.end()
        cell = self._display.end()
        if cell is not None:
            self._tell_hints(cell)
        self._link.start_relaying(announced=self._scheduler.announced_cell)
        self._lifecycle.kernel_connected()
        self._control.on_kernel_connected()
        self._scheduler.on_kernel_connected()
        self._show_outage()
        self._count_oom_kills()

    def _show_outage(self) -> None:
        """Cells that run show that the pool is out of reach, or back; one that waits has its own display."""
        acquisition = self._lifecycle.acquisition
        if acquisition is not None and acquisition.outage is not None and self._lifecycle.connected:
            self._outage_display.show(acquisition.outage)

    def _count_oom_kills(self) -> None:
        from bitfusion_client.pod.oom_kills import OomKills

        acquisition = self._lifecycle.acquisition
        if acquisition is not None and acquisition.kernel_pid is not None:
            self._oom_kills = OomKills(acquisition.kernel_pid)

    # -- ends --------------------------------------------------------------------------------------

    def _on_kernel_exited(self, event: KernelExitedEvent) -> None:
        self._lifecycle.kernel_exited(event.status)
        if self._lifecycle.acquisition is not None:
            self._lifecycle.acquisition.died_too_often = event.last
            if event.oom_kills >= 0:
                self._lifecycle.acquisition.memory_ran_out = event.oom_kills > 0
        if self._lifecycle.state is KernelState.SHUTTING_DOWN:
            self._on_kernel_lost()
        elif self._lifecycle.state in (KernelState.WAITING, KernelState.STARTING):
            self._supervisor.stop()  # the cell that has waited is told, with the wrapper's end
        elif self._lifecycle.connected:
            acquisition = self._lifecycle.acquisition
            outage = None if acquisition is None else acquisition.outage
            delay = LAST_WORDS_DELAY if outage is not None and outage.lasts else LAST_OUTPUT_DELAY
            self._loop.set_timer("kernel lost", time.monotonic() + delay, self._on_kernel_lost)

    def _on_kernel_lost(self) -> None:
        """The kernel has exited and its wrapper has not: the proxy waits no longer."""
        before = self._lifecycle.state
        self._lifecycle.kernel_lost()
        self._report_kernel_lost(before)

    def _on_wrapper_exited(self, event: WrapperExitedEvent) -> None:
        acquisition = self._lifecycle.acquisition
        if acquisition is None or event.number != acquisition.number:
            self._resize.on_exited(event)
            return
        self._wrapper_pid = None
        before = self._lifecycle.state
        self._lifecycle.wrapper_exited(event.status)
        if before is KernelState.RELEASING:
            self._oom_kills = None
            self._give_back.on_wrapper_exited()
            self._scheduler.on_wait_over()
        elif before in CONNECTED:
            self._report_kernel_lost(before)
        elif before is not KernelState.OVER:
            lost = acquisition.held_since is not None and not acquisition.granted
            if (
                lost
            ):  # what a restart had kept, before it had a kernel: who waits asks anew, and is told later
                self._tell_later(KEPT_IS_LOST)
            unasked = lost or before is KernelState.CANCELLING
            self._report_wait_over(None if unasked else acquisition.why_it_ended())

    def _report_kernel_lost(self, before: KernelState) -> None:
        """Pass on the kernel's last replies; then, unless it was to end, the running cell shows why."""
        self._shell.relay_replies(self._link.shell_replies())
        self._control.relay_replies(self._link.control_replies())
        acquisition = self._lifecycle.acquisition
        if before is KernelState.RUNNING and acquisition is not None:
            if self._oom_kills is not None and acquisition.memory_ran_out is None:
                acquisition.memory_ran_out = self._oom_kills.happened()
            self._scheduler.show_death(acquisition.why_it_ended(ran=True))

    def _report_wait_over(self, error: BitfusionError | None) -> None:
        """No kernel comes. `error` is None if no cell is to fail: it has been cancelled, or asks anew."""
        was_starting_up = self._start_up.end()
        self._link.close()
        self._shell.on_wait_over()
        if error is not None:
            self._control.refuse_held(error)
            if not self._scheduler.fail_wait(error) and was_starting_up:
                self._lifecycle.fail_next_request(error)  # the first cell must not wait once more
        self._scheduler.on_wait_over()
        self._control.on_wait_over()

    def _on_supervisor_died(self) -> None:
        from bitfusion_client.errors import WrapperDied

        acquisition = self._lifecycle.acquisition
        asked = acquisition.request if acquisition is not None else ""
        error = WrapperDied(asked, "the process that kept `bitfusion run` was killed")
        self._control.refuse_held(error)
        self._scheduler.show_death(error)
        if self._wrapper_pid is not None:
            known = (
                (None, None) if acquisition is None else (acquisition.kernel_pid, acquisition.launcher_pid)
            )
            granted = acquisition is not None and acquisition.granted
            reaper.end_orphan(self._wrapper_pid, *known, granted=granted)
        if self._resize.wrapper_pid is not None:
            reaper.end_orphan(self._resize.wrapper_pid, None, None, granted=False)
        self._lifecycle.end(1)


def _news(queue: Waiting | None) -> int | str | None:
    """What a person waits to hear of: the position, else the reason, where nobody knows a position."""
    return None if queue is None else queue.queue_position or queue.why
