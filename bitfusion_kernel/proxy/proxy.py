"""The proxy put together: its parts are made and wired here, run, and closed in order.

One loop over all sockets, one thread; only the heartbeat and, once the kernel is connected, its output run in
threads of C. No part holds the whole; each is given the few others that it needs:

    lifecycle         the state of the kernel, and its transitions
    shell_requests    requests on shell: answered, queued, relayed
    control_requests  interrupt, shutdown, the debugger
    cell_scheduler    which cell runs next; with command_cell, wait_display, cell_replies
    kernel_link       the kernel's sockets, joined and relayed
    start_up_wait     whether the kernel is ready only with its GPU, and not yet
    kernel_events     what supervisor and kernel report, and what follows from it
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import zmq

from bitfusion_kernel.gpu.simulated import with_banner_line
from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.protocol.wire import Wire
from bitfusion_kernel.proxy import late_imports
from bitfusion_kernel.proxy.cells.cell_replies import CellReplies
from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel, ClientSockets
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from bitfusion_kernel.proxy.kernel.kernel_link import KernelLink
from bitfusion_kernel.proxy.kernel_view import ProxyKernelView
from bitfusion_kernel.proxy.requests.control_requests import ControlRequests
from bitfusion_kernel.proxy.requests.shell_requests import ShellRequests
from bitfusion_kernel.proxy.requests.start_up_wait import StartUpWait

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.gpu.kernel_starter import KernelStarter
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.protocol.connection_file import ConnectionInfo
    from bitfusion_kernel.proxy.cells.client_command import ClientCommand, OnEnd, OnOutput
    from bitfusion_kernel.proxy.cells.command_cell import CommandCell
    from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
    from bitfusion_kernel.proxy.kernel_events import KernelEvents
    from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

RELEASE_LIMIT = 2.0
"""Seconds the proxy waits at its end for the wrapper to give the GPU back; the supervisor continues."""

OUTPUT_DRAIN = 0.03
"""Seconds for the output relay to pass on what the proxy published last."""

PARENT_POLL = 1.0
"""Seconds between looks at Jupyter's process where there are no pidfds."""


def serve(
    info: ConnectionInfo,
    wrapped: WrappedKernel,
    starter: KernelStarter,
    supervisor: SupervisorLink,
    lifecycle: KernelLifecycle,
) -> int:
    """Serve Jupyter's clients until shutdown, death of the kernel, or death of Jupyter.

    Called once by `proxy.process`. Returns the exit status.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    wire = Wire(info.key, info.signature_scheme, os.environ.get("USER", ""))
    loop = EventLoop()
    sockets = ClientSockets(context, zmq.Context(), info)
    publisher = Publisher(wire, sockets.iopub)
    shell_channel = ClientChannel(sockets.shell, wire, publisher)
    control_channel = ClientChannel(sockets.control, wire, publisher)
    stdin_channel = ClientChannel(sockets.stdin, wire, publisher)
    link = KernelLink(context, loop, wire, sockets.iopub, publisher)
    subshells = EarlySubshells(wire)
    offline = OfflineReplies(
        with_banner_line(wrapped.kernel_info) if starter.uses_embedded_pool else wrapped.kernel_info,
        _history(starter.kernel_options),
        _completeness(wrapped.language),
        _complete_commands,
        starter.files_prefix,
        subshells,
    )
    kernel_view = ProxyKernelView(starter, lifecycle)
    replies = CellReplies(shell_channel, publisher)
    display = WaitDisplay(loop, lifecycle, publisher)

    def run_client(subcommand: str, on_output: OnOutput, on_end: OnEnd, limit: float) -> ClientCommand:
        from bitfusion_kernel.proxy.cells.client_command import ClientCommand

        argv = [starter.find_client().path, subcommand]
        return ClientCommand(loop, argv, starter.client_environment(), on_output, on_end, limit)

    def tell_hints(cell: QueuedRequest) -> None:
        for line in starter.hints:
            replies.announce(cell)
            publisher.stream(f"{line}\n", cell.message.header, "stderr")

    def make_command_cell(cell: QueuedRequest) -> CommandCell:
        from bitfusion_kernel.proxy.cells.command_cell import CommandCell

        return CommandCell(cell, scheduler, kernel_view, publisher, run_client)

    scheduler = CellScheduler(
        loop,
        lifecycle,
        replies,
        display,
        starter,
        subshells,
        send_to_kernel=lambda frames: link.send_shell(subshells.to_kernel(frames)),
        make_command_cell=make_command_cell,
        receive_arrived=lambda: shell.receive(),
    )
    start_up = StartUpWait(loop, lifecycle, lasts=lifecycle.requested and starter.is_ready_with_gpu)
    control = ControlRequests(
        control_channel,
        loop,
        lifecycle,
        offline,
        subshells,
        scheduler,
        link,
        stop_wrapper=supervisor.stop,
        interrupts_expected=lambda: shell.seen,
        started_at=_started_at,
        why_given_up=lambda: _why_given_up(lifecycle, start_up, scheduler),
    )
    shell = ShellRequests(
        shell_channel,
        loop,
        lifecycle,
        offline,
        scheduler,
        start_up,
        kernel_inbox_full=lambda: link.inbox_full,
        on_shutdown=lambda request: control.shut_down(request, shell_channel),
    )

    def on_stdin() -> None:
        for message in stdin_channel.receive():
            if lifecycle.connected:
                link.send_stdin(message.frames)

    def relay_stdin(requests: Iterator[list[bytes]]) -> None:
        for frames in requests:
            stdin_channel.send(frames)

    @functools.cache
    def kernel_events() -> KernelEvents:
        from bitfusion_kernel.processes import reaper
        from bitfusion_kernel.proxy.cells.outage_display import OutageDisplay
        from bitfusion_kernel.proxy.kernel_events import KernelEvents

        reaper.adopt_orphans()  # those of a supervisor that is killed
        return KernelEvents(
            loop,
            supervisor,
            lifecycle,
            link,
            shell,
            control,
            scheduler,
            display,
            OutageDisplay(publisher, scheduler),
            start_up,
            tell_hints,
        )

    def on_supervisor() -> None:
        supervisor.flush()
        watch_supervisor()
        kernel_events().on_readable()

    def watch_supervisor() -> None:
        loop.on(supervisor.fileno(), on_supervisor, writable=supervisor.wants_write)

    publisher.status("starting")
    shell.watch()
    control.watch()
    loop.on(sockets.stdin, on_stdin)
    loop.on(sockets.iopub, publisher.welcome_subscriber)
    supervisor.on_backlog = watch_supervisor
    watch_supervisor()
    link.deliver_to(shell=shell.on_kernel_replies, control=control.relay_replies, stdin=relay_stdin)

    def on_jupyter_gone() -> None:
        starter.forget_choice()
        lifecycle.end(1)

    _watch_parent(loop, on_jupyter_gone)
    late_imports.begin(loop)
    from bitfusion_kernel.proxy.magic_socket import MagicSocket

    magic_socket = MagicSocket(loop, kernel_view, run_client)
    starter.on_folder = magic_socket.listen_in
    with contextlib.suppress(OSError):  # told by the cell that asks for a kernel
        magic_socket.listen_in(supervisor.folder)
    gc.freeze()  # what has been imported stays; collections need not look at it
    gc.enable()
    loop.run(until=lambda: lifecycle.over)
    magic_socket.close()
    if control.shut_down_for_good:
        starter.forget_choice()

    supervisor.stop()
    if link.relays_output:
        time.sleep(OUTPUT_DRAIN)
    _await_release(supervisor, lifecycle)
    sockets.close()
    link.close()
    publisher.close()
    context.term()
    return lifecycle.exit_status or 0


def _why_given_up(
    lifecycle: KernelLifecycle, start_up: StartUpWait, scheduler: CellScheduler
) -> BitfusionError | None:
    """What a cell shows whose tool shuts the kernel down while it waits. Jupyter's log is told here.

    A tool whose time limit has ended says nothing of what was waited for.
    """
    acquisition, waited = lifecycle.acquisition, scheduler.waited
    if acquisition is None or not (start_up.lasts or scheduler.waits_unattended):
        return None
    from bitfusion_kernel.gpu import time_limits
    from bitfusion_kernel.proxy.jupyter.jupyter_log import write_line

    if start_up.lasts or waited is None:
        write_line(f"bitfusion_kernel: {time_limits.start_given_up(acquisition, time.monotonic())}")
        return None
    write_line(f"bitfusion_kernel: {time_limits.cell_given_up(acquisition, waited)}")
    return time_limits.error_of_cell_given_up(acquisition, waited)


def _started_at() -> float:
    from bitfusion_kernel.processes.process_watch import started_at

    return started_at()


def _watch_parent(loop: EventLoop, on_death: Callable[[], None]) -> None:
    """Have `on_death` called when Jupyter's process is gone."""
    starter = os.environ.get("JPY_PARENT_PID")
    if not starter:
        return  # started by hand, as ipykernel sees it
    from bitfusion_kernel.processes.process_watch import ProcessWatch

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


def _await_release(supervisor: SupervisorLink, lifecycle: KernelLifecycle) -> None:
    """Wait until the wrapper has given its GPU back, or for `RELEASE_LIMIT`."""
    from bitfusion_kernel.processes.messages import StoppedEvent, WrapperExitedEvent

    deadline = time.monotonic() + RELEASE_LIMIT
    acquisition = lifecycle.acquisition
    released = acquisition is None or acquisition.wrapper_status is not None
    while not (released or supervisor.closed) and (left := deadline - time.monotonic()) > 0:
        fd = supervisor.fileno()
        zmq.select([fd], [fd] if supervisor.wants_write else [], [], left)
        supervisor.flush()
        released = any(isinstance(event, (WrapperExitedEvent, StoppedEvent)) for event in supervisor.events())
    if supervisor.closed:
        from bitfusion_kernel.processes import private_folder

        private_folder.remove(supervisor.folder)


def _history(kernel_options: list[str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def reply(content: dict[str, Any]) -> dict[str, Any]:
        from bitfusion_kernel.offline.history import history_reply

        return history_reply(content, kernel_options, os.environ)

    return reply


def _complete_commands(code: str, cursor: int) -> tuple[list[str], int] | None:
    if "%" not in code:
        return None
    from bitfusion_kernel.magic.completion import complete

    return complete(code, cursor)


def _completeness(language: str) -> Callable[[str], dict[str, Any]]:
    def reply(code: str) -> dict[str, Any]:
        from bitfusion_kernel.offline.code_completeness import is_complete_reply

        return is_complete_reply(code, language)

    return reply
