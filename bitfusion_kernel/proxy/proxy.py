"""The proxy put together: its parts are made and wired here, run, and closed in order.

One loop over all sockets, one thread; only the heartbeat and, once the kernel is connected, its output run in
threads of C.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import zmq

from bitfusion_kernel.gpu.simulated import with_banner_line
from bitfusion_kernel.magic.kernel_view import KernelView
from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.processes.process_watch import ProcessWatch, started_at
from bitfusion_kernel.protocol.wire import Wire
from bitfusion_kernel.proxy import late_imports
from bitfusion_kernel.proxy.cells.cell_replies import CellReplies
from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue, RequestsInKernel
from bitfusion_kernel.proxy.cells.running_commands import RunningCommands
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel, ClientSockets
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from bitfusion_kernel.proxy.kernel.kernel_link import KernelLink
from bitfusion_kernel.proxy.requests.control_requests import ControlRequests
from bitfusion_kernel.proxy.requests.shell_requests import ShellRequests
from bitfusion_kernel.proxy.requests.start_up_wait import StartUpWait

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.kernel_starter import KernelStarter
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.protocol.connection_file import ConnectionInfo
    from bitfusion_kernel.proxy.cells.client_command import ClientCommand, OnEnd, OnOutput
    from bitfusion_kernel.proxy.cells.command_cell import CommandCell, CommandScheduler
    from bitfusion_kernel.proxy.kernel_events import KernelEvents
    from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
    from bitfusion_kernel.proxy.magic_socket import MagicSocket
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

RELEASE_LIMIT = 2.0
"""Seconds the proxy waits at its end for the wrapper to give the GPU back; the supervisor continues."""

OUTPUT_DRAIN = 0.03
"""Seconds for the output relay to pass on what the proxy published last."""

PARENT_POLL = 1.0
"""Seconds between looks at Jupyter's process where there are no pidfds."""


class Proxy:
    """The parts of one proxy. Each is made when it is first asked for, and is given the few that it needs.

    Nothing but this class knows it: `proxy.process` makes one and calls `serve`.
    """

    def __init__(
        self,
        info: ConnectionInfo,
        wrapped: WrappedKernel,
        starter: KernelStarter,
        supervisor: SupervisorLink,
        lifecycle: KernelLifecycle,
    ) -> None:
        self._wrapped = wrapped
        self._starter = starter
        self._supervisor = supervisor
        self._lifecycle = lifecycle
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._wire = Wire(info.key, info.signature_scheme, os.environ.get("USER", ""))
        self._loop = EventLoop()
        self._sockets = ClientSockets(self._context, zmq.Context(), info)
        self._publisher = Publisher(self._wire, self._sockets.iopub)
        self._subshells = EarlySubshells(self._wire)
        self._queue = RequestQueue()
        self._in_kernel = RequestsInKernel()
        self._commands = RunningCommands()
        self._display = WaitDisplay(self._loop, lifecycle, self._publisher)
        self._kernel_view = KernelView(starter, lifecycle)

    # -- its life --------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve Jupyter's clients until shutdown, death of the kernel, or death of Jupyter.

        Returns the exit status.
        """
        self._publisher.status("starting")
        self._shell.watch()
        self._control.watch()
        self._loop.on(self._sockets.stdin, self._on_stdin)
        self._loop.on(self._sockets.iopub, self._publisher.welcome_subscriber)
        self._supervisor.on_backlog = self._watch_supervisor
        self._watch_supervisor()
        self._link.deliver_to(
            shell=self._shell.on_kernel_replies, control=self._control.relay_replies, stdin=self._relay_stdin
        )
        _watch_parent(self._loop, self._on_jupyter_gone)
        late_imports.begin(self._loop)
        self._starter.on_folder = self._magic_socket.listen_in
        with contextlib.suppress(OSError):  # told by the cell that asks for a kernel
            self._magic_socket.listen_in(self._supervisor.folder)
        gc.freeze()  # what has been imported stays; collections need not look at it
        gc.enable()
        self._loop.run(until=lambda: self._lifecycle.over)
        self._close()
        return self._lifecycle.exit_status or 0

    def _close(self) -> None:
        self._magic_socket.close()
        if self._control.shut_down_for_good:
            self._starter.forget_choice()
        self._supervisor.stop()
        if self._link.relays_output:
            time.sleep(OUTPUT_DRAIN)
        acquisition = self._lifecycle.acquisition
        runs = acquisition is not None and acquisition.wrapper_status is None
        self._supervisor.await_release(RELEASE_LIMIT if runs else 0)
        self._sockets.close()
        self._link.close()
        self._publisher.close()
        self._context.term()

    def _on_jupyter_gone(self) -> None:
        self._starter.forget_choice()
        self._lifecycle.end(1)

    # -- Jupyter's side --------------------------------------------------------------------------

    @cached_property
    def _shell_channel(self) -> ClientChannel:
        return ClientChannel(self._sockets.shell, self._wire, self._publisher)

    @cached_property
    def _stdin_channel(self) -> ClientChannel:
        return ClientChannel(self._sockets.stdin, self._wire, self._publisher)

    def _on_stdin(self) -> None:
        for message in self._stdin_channel.receive():
            if self._lifecycle.connected:
                self._link.send_stdin(message.frames)

    def _relay_stdin(self, requests: Iterator[list[bytes]]) -> None:
        for frames in requests:
            self._stdin_channel.send(frames)

    @cached_property
    def _offline(self) -> OfflineReplies:
        info = self._wrapped.kernel_info
        return OfflineReplies(
            with_banner_line(info) if self._starter.uses_embedded_pool else info,
            self._wrapped.language,
            self._starter.kernel_options,
            self._starter.files_prefix,
            self._subshells,
        )

    @cached_property
    def _shell(self) -> ShellRequests:
        return ShellRequests(
            self._shell_channel,
            self._loop,
            self._lifecycle,
            self._offline,
            self._queue,
            self._in_kernel,
            self._scheduler,
            self._start_up,
            kernel_inbox_full=lambda: self._link.inbox_full,
            on_shutdown=lambda request: self._control.shut_down(request, self._shell_channel),
        )

    @cached_property
    def _control(self) -> ControlRequests:
        return ControlRequests(
            ClientChannel(self._sockets.control, self._wire, self._publisher),
            self._loop,
            self._lifecycle,
            self._offline,
            self._subshells,
            self._in_kernel,
            self._commands,
            self._display,
            self._scheduler,
            self._link,
            stop_wrapper=self._supervisor.stop,
            interrupts_expected=lambda: self._shell.seen,
            started_at=started_at,
            why_given_up=lambda: self._start_up.why_given_up(self._display),
        )

    # -- cells -----------------------------------------------------------------------------------

    @cached_property
    def _start_up(self) -> StartUpWait:
        lasts = self._lifecycle.requested and self._starter.acquire_at_start == "start_and_wait"
        return StartUpWait(self._loop, self._lifecycle, lasts=lasts)

    @cached_property
    def _replies(self) -> CellReplies:
        return CellReplies(self._shell_channel, self._publisher, self._queue, lambda: self._shell.receive())

    @cached_property
    def _scheduler(self) -> CellScheduler:
        return CellScheduler(
            self._loop,
            self._lifecycle,
            self._queue,
            self._in_kernel,
            self._commands,
            self._replies,
            self._display,
            self._subshells,
            silent_wait=lambda: self._starter.silent_wait,
            send_to_kernel=lambda frames: self._link.send_shell(self._subshells.to_kernel(frames)),
            make_command_cell=self._make_command_cell,
        )

    def _make_command_cell(self, cell: QueuedRequest, scheduler: CommandScheduler) -> CommandCell:
        from bitfusion_kernel.proxy.cells.command_cell import CommandCell

        return CommandCell(cell, scheduler, self._kernel_view, self._publisher, self._run_client)

    def _run_client(self, subcommand: str, on_output: OnOutput, on_end: OnEnd, limit: float) -> ClientCommand:
        from bitfusion_kernel.proxy.cells.client_command import ClientCommand

        argv = [self._starter.find_client().path, subcommand]
        return ClientCommand(self._loop, argv, self._starter.client_environment(), on_output, on_end, limit)

    @cached_property
    def _magic_socket(self) -> MagicSocket:
        from bitfusion_kernel.proxy.magic_socket import MagicSocket

        return MagicSocket(self._loop, self._kernel_view, self._run_client)

    # -- the kernel's side -----------------------------------------------------------------------

    @cached_property
    def _link(self) -> KernelLink:
        return KernelLink(self._context, self._loop, self._wire, self._sockets.iopub, self._publisher)

    @cached_property
    def _kernel_events(self) -> KernelEvents:
        from bitfusion_kernel.processes import reaper
        from bitfusion_kernel.proxy.cells.outage_display import OutageDisplay
        from bitfusion_kernel.proxy.kernel_events import KernelEvents

        reaper.adopt_orphans()  # those of a supervisor that is killed
        return KernelEvents(
            self._loop,
            self._supervisor,
            self._lifecycle,
            self._link,
            self._shell,
            self._control,
            self._scheduler,
            self._display,
            OutageDisplay(self._publisher, self._in_kernel),
            self._start_up,
            self._tell_hints,
        )

    def _tell_hints(self, cell: QueuedRequest) -> None:
        for line in self._starter.hints:
            self._replies.announce(cell)
            self._publisher.stream(f"{line}\n", cell.message.header, "stderr")

    def _on_supervisor(self) -> None:
        self._supervisor.flush()
        self._watch_supervisor()
        self._kernel_events.on_readable()

    def _watch_supervisor(self) -> None:
        link = self._supervisor
        self._loop.on(link.fileno(), self._on_supervisor, writable=link.wants_write)


def _watch_parent(loop: EventLoop, on_death: Callable[[], None]) -> None:
    """Have `on_death` called when Jupyter's process is gone."""
    starter = os.environ.get("JPY_PARENT_PID")
    if not starter:
        return  # started by hand, as ipykernel sees it
    parent = ProcessWatch(os.getppid())
    # Jupyter may have died before this line: then the parent is already another process.
    if starter.isdigit() and int(starter) != parent.pid and not ProcessWatch(int(starter)).alive:
        on_death()
        return
    if parent.fd is not None:
        loop.on(parent.fd, on_death)
        return

    def look() -> None:
        if parent.alive:
            loop.set_timer("parent", time.monotonic() + PARENT_POLL, look)
        else:
            on_death()

    look()
