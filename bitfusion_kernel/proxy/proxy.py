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
from functools import cached_property, partial
from typing import TYPE_CHECKING

import zmq

from bitfusion_kernel.gpu.simulated import with_banner_line
from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.processes.process_watch import ProcessWatch, started_at
from bitfusion_kernel.protocol.wire import Wire, is_type
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
from bitfusion_kernel.proxy.requests.signals import Signals
from bitfusion_kernel.proxy.requests.start_up_wait import StartUpWait

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.gpu.kernel_starter import KernelStarter
    from bitfusion_kernel.magic.kernel_view import KernelView
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.protocol.connection_file import ConnectionInfo
    from bitfusion_kernel.proxy.cells.client_command import ClientCommand, OnEnd, OnOutput
    from bitfusion_kernel.proxy.cells.command_cell import CommandCell, CommandScheduler
    from bitfusion_kernel.proxy.cells.question import Questions
    from bitfusion_kernel.proxy.give_back import GiveBack
    from bitfusion_kernel.proxy.idle_watch import IdleWatch
    from bitfusion_kernel.proxy.kernel_events import KernelEvents
    from bitfusion_kernel.proxy.kernel_state import Asked
    from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
    from bitfusion_kernel.proxy.magic_socket import MagicSocket
    from bitfusion_kernel.proxy.orders import Orders
    from bitfusion_kernel.proxy.resize import Resize
    from bitfusion_kernel.proxy.state_board import StateBoard
    from bitfusion_kernel.proxy.state_log import StateLog
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

RELEASE_LIMIT = 2.0
"""Seconds the proxy waits at its end for the wrapper to give the GPU back; the supervisor continues."""

KEPT_FOR_RESTART = 30.0
"""Seconds that the supervisor keeps lease or place for the proxy that follows in a restart."""

SETTLE_IN_AFTER = 0.05
"""Seconds until a proxy looks after its supervisor and its state: Jupyter's first question goes first."""

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
        self._display = WaitDisplay(self._loop, lifecycle, self._publisher, state=lambda: self._board.look())
        self._jupyter_gone = False
        self._idle: IdleWatch | None = None
        self._worked: Acquisition | None = None  # the last one on which a cell has finished
        self._orders_made: Orders | None = None

    # -- its life --------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve Jupyter's clients until shutdown, death of the kernel, or death of Jupyter.

        Returns the exit status.
        """
        self._publisher.status("starting")
        self._shell.watch()
        self._control.watch()
        self._signals.watch()
        self._loop.on(self._sockets.stdin, self._on_stdin)
        self._loop.on(self._sockets.iopub, self._publisher.welcome_subscriber)
        self._lifecycle.on_change = self._on_state
        self._supervisor.on_backlog = self._watch_supervisor
        self._link.deliver_to(
            shell=self._shell.on_kernel_replies,
            control=self._control.relay_replies,
            stdin=self._relay_stdin,
            reconnected=self._scheduler.ask_all,
        )
        _watch_jupyter(self._loop, self._on_jupyter_gone)
        late_imports.begin(self._loop)
        self._starter.on_folder = self._use_folder
        if self._supervisor.kept.number:
            self._settle_in()
        else:
            self._loop.set_timer("settle in", time.monotonic() + SETTLE_IN_AFTER, self._settle_in)
        gc.freeze()  # what has been imported stays; collections need not look at it
        gc.enable()
        self._loop.run(until=lambda: self._lifecycle.over)
        self._close()
        return self._lifecycle.exit_status or 0

    def _settle_in(self) -> None:
        self._watch_supervisor()
        if folder := self._supervisor.folder:
            with contextlib.suppress(OSError):  # told by the cell that asks for a kernel
                self._use_folder(folder)
        else:
            self._board.touch()

    def _use_folder(self, folder: str) -> None:
        from bitfusion_client.kernel_state import states

        if self._starter.file_name != states.FILE_NAME:  # that would be the kernel's connection file
            self._board.write_in(folder)
        self._magic_socket.listen_in(folder)

    @property
    def _keeps(self) -> bool:
        """Whether what there is is kept for the next proxy."""
        return (self._lifecycle.kernel_died or self._control.restart_follows) and not self._jupyter_gone

    def _close(self) -> None:
        self._board.close()
        self._magic_socket.close(restarts=self._keeps)
        if self._control.shut_down_for_good:
            self._starter.forget_choice()
        keeps = self._keeps
        if not keeps:
            self._supervisor.stop()
        acquisition = self._lifecycle.acquisition
        running = None if acquisition is None or acquisition.wrapper_status is not None else acquisition
        self._supervisor.stays = keeps and running is not None and not running.died_too_often
        self._supervisor.await_release(RELEASE_LIMIT if running is not None and not keeps else 0)
        self._link.close()
        self._sockets.close()
        self._publisher.close()
        self._context.term()

    def _on_jupyter_gone(self, why: str) -> None:
        from bitfusion_kernel.proxy.jupyter.jupyter_log import write_line

        write_line(f"bitfusion_kernel: the kernel ends, because {why}.")
        self._jupyter_gone = True
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
            if not self._questions.take(message) and self._lifecycle.connected:
                self._link.send_stdin(message.frames)

    @cached_property
    def _questions(self) -> Questions:
        from bitfusion_kernel.proxy.cells.question import Questions

        return Questions(self._stdin_channel, self._wire)

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
            self._in_kernel,
            self._commands,
            self._display,
            self._scheduler,
            self._link,
            stop_wrapper=self._supervisor.stop,
            keep_for_restart=self._keep_for_restart,
            signal_kernel=self._supervisor.signal,
            interrupt_by_message=self._wrapped.interrupt_mode == "message",
            interrupts_expected=lambda: self._shell.seen,
            started_at=started_at,
            why_given_up=lambda: self._start_up.why_given_up(self._display),
        )

    def _keep_for_restart(self) -> None:
        self._supervisor.park(KEPT_FOR_RESTART, self._starter.kernel_after(self._lifecycle.acquisition))

    @cached_property
    def _signals(self) -> Signals:
        return Signals(
            self._loop,
            self._lifecycle,
            self._scheduler,
            interrupt=self._control.interrupt,
            signal_kernel=self._supervisor.signal,
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
            silent_wait=lambda: self._starter.silent_wait,
            send_to_kernel=self._link.send_shell,
            ask_kernel=self._ask_kernel,
            on_cell_over=self._on_cell_over,
            on_idle=self._on_idle,
            make_command_cell=self._make_command_cell,
        )

    def _on_cell_over(self) -> None:
        if self._worked is not self._lifecycle.acquisition:
            self._worked = self._lifecycle.acquisition
            self._supervisor.worked()

    def _on_idle(self) -> None:
        if self._orders_made is not None:
            self._orders_made.on_idle()

    def _ask_kernel(self, subshell: str | None) -> str | None:
        frames = self._wire.build("kernel_info_request", {}, subshell=subshell)
        return self._wire.read(frames).id if self._link.send_shell(frames) else None

    def _make_command_cell(self, cell: QueuedRequest, scheduler: CommandScheduler) -> CommandCell:
        from bitfusion_kernel.proxy.cells.command_cell import CommandCell

        return CommandCell(
            cell,
            scheduler,
            self._kernel_view,
            self._publisher,
            self._run_client,
            self._give_back,
            self._resize,
            self._questions,
        )

    def _run_client(self, subcommand: str, on_output: OnOutput, on_end: OnEnd, limit: float) -> ClientCommand:
        from bitfusion_kernel.proxy.cells.client_command import ClientCommand

        argv = [self._starter.find_client().path, subcommand]
        return ClientCommand(self._loop, argv, self._starter.client_environment(), on_output, on_end, limit)

    @cached_property
    def _magic_socket(self) -> MagicSocket:
        from bitfusion_kernel.proxy.magic_socket import MagicSocket

        return MagicSocket(self._loop, self._kernel_view, self._run_client, self._board, lambda: self._orders)

    @cached_property
    def _orders(self) -> Orders:
        from bitfusion_kernel.proxy.orders import Orders

        self._orders_made = made = Orders(
            self._wire,
            self._lifecycle,
            self._in_kernel,
            self._commands,
            self._scheduler,
            self._control,
            self._give_back,
            self._resize,
            lambda: self._idle,
            self._starter.told,
        )
        return made

    # -- its state as others see it ----------------------------------------------------------------

    @cached_property
    def _kernel_view(self) -> KernelView:
        from bitfusion_kernel.magic.kernel_view import KernelView

        view = KernelView(self._starter, self._lifecycle, self._board.look, self._board.touch)
        view.cancel_wait = lambda: self._control.cancel_wait("cancelled")
        view.cancel_resize = lambda: self._resize.cancel("cancelled")
        view.ask_anew = self._control.ask_anew
        view.idle_status = lambda: "" if self._idle is None else self._idle.status
        return view

    @cached_property
    def _board(self) -> StateBoard:
        from bitfusion_client.kernel_state import proxy_socket
        from bitfusion_kernel.gpu import own_name
        from bitfusion_kernel.proxy.state_board import StateBoard

        board = StateBoard(
            self._loop,
            self._lifecycle,
            self._in_kernel,
            self._asked_next,
            lambda: self._keeps,
            own_name.notebook(os.environ),
            proxy_socket.kernel_id(self._starter.file_name),
        )
        board.idle_release_at = lambda: None if self._idle is None else self._idle.release_at
        return board

    @cached_property
    def _state_log(self) -> StateLog:
        from bitfusion_kernel.proxy.state_log import StateLog

        return StateLog(self._board)

    def _asked_next(self) -> Asked | None:
        from bitfusion_client.errors import BitfusionError
        from bitfusion_kernel.proxy.kernel_state import Asked

        try:
            request, left = self._starter.request, self._starter.takes_what_is_left
        except BitfusionError:
            return None  # the first cell tells what is wrong
        return Asked(request, left, f"what is left of {request.describe()}" if left else "")

    # -- the kernel's side -----------------------------------------------------------------------

    @cached_property
    def _link(self) -> KernelLink:
        return KernelLink(self._loop, self._wire, self._sockets.iopub, self._publisher, self._subshells)

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
            self._give_back,
            self._resize,
            self._starter.told.append,
            self._tell_hints,
            on_working=lambda: self._touched("PROCESSES"),
        )

    @cached_property
    def _give_back(self) -> GiveBack:
        from bitfusion_kernel.proxy.give_back import GiveBack

        made = GiveBack(
            self._loop,
            self._lifecycle,
            self._link,
            self._in_kernel,
            self._replies,
            self._publisher,
            self._control,
            self._supervisor.stop,
            self._starter.told.append,
        )
        self._control.on_own_reply = self._shell.on_own_reply = made.on_reply
        return made

    @cached_property
    def _resize(self) -> Resize:
        from bitfusion_kernel.proxy.resize import Resize

        return Resize(self._loop, self._supervisor, self._starter, self._publisher)

    # -- a kernel that does nothing ------------------------------------------------------------------

    def _on_state(self) -> None:
        self._board.touch()
        if self._lifecycle.acquisition is not None and self._starter.log_states:
            _ = self._state_log  # from here on
        if not self._lifecycle.connected and self._orders_made is not None:
            self._orders_made.on_kernel_gone()
        if self._lifecycle.connected is (self._idle is not None):
            return
        if self._idle is not None:
            self._idle.close()
            self._idle = None
            self._in_kernel.on_change = self._board.on_work
        elif after := self._starter.settings.idle_release:
            self._watch_idle(after)

    def _watch_idle(self, after: float) -> None:
        from bitfusion_kernel.proxy.idle_watch import IdleWatch

        self._idle = idle = IdleWatch(
            after,
            self._loop,
            self._in_kernel,
            self._link,
            self._publisher,
            self._give_back,
            self._supervisor.watch,
            self._board.touch,
        )

        def on_change() -> None:
            self._board.on_work()
            idle.on_cells()

        def on_message(frames: list[bytes]) -> None:
            if is_type(frames, b"comm_msg") or is_type(frames, b"comm_open"):
                self._touched("COMM")

        self._in_kernel.on_change = on_change
        self._shell.on_message = on_message
        self._shell.on_commands = lambda: self._touched("CELL")

    def _touched(self, work: str) -> None:
        if self._idle is not None:
            self._idle.touched(work)

    def _tell_hints(self, cell: QueuedRequest) -> None:
        acquisition = self._lifecycle.acquisition
        notes = [] if acquisition is None else acquisition.notes
        for line in [*self._starter.hints, *notes]:
            self._replies.announce(cell)
            self._publisher.stream(f"{line}\n", cell.message.header, "stderr")
        self._starter.told.clear()
        notes.clear()

    def _on_supervisor(self) -> None:
        self._supervisor.flush()
        self._watch_supervisor()
        self._kernel_events.on_readable()
        self._board.touch()

    def _watch_supervisor(self) -> None:
        link = self._supervisor
        self._loop.on(link.fileno(), self._on_supervisor, writable=link.wants_write)


def _watch_jupyter(loop: EventLoop, on_death: Callable[[str], None]) -> None:
    """Have `on_death` called with what is gone when Jupyter's process is."""
    jupyter = os.environ.get("JPY_PARENT_PID", "")
    if not jupyter:
        return  # started by hand, as ipykernel sees it
    parent = os.getppid()
    watched: list[int] | None = [parent]
    if jupyter.isdecimal() and int(jupyter) != parent:
        from bitfusion_kernel.proxy.jupyter.starters import PidSpace, starters

        watched = starters(int(jupyter), parent, PidSpace())
    if watched is None:
        on_death(f"process {jupyter}, Jupyter's, is gone")
        return
    for pid in watched:
        _watch_process(
            loop, ProcessWatch(pid), partial(on_death, f"process {pid}, which started it, is gone")
        )


def _watch_process(loop: EventLoop, process: ProcessWatch, on_death: Callable[[], None]) -> None:
    if process.fd is not None:
        loop.on(process.fd, on_death)
        return

    def look() -> None:
        if process.alive:
            loop.set_timer(f"process {process.pid}", time.monotonic() + PARENT_POLL, look)
        else:
            on_death()

    look()
