"""The proxy: answers Jupyter at once, and relays to the kernel once there is one.

One loop over all sockets, one thread; only the heartbeat and, after the handover, the kernel's output run
in threads of C (`relay`). Its states, in order:

    nothing asked  ->  waiting (a wrapper runs, in the pool's queue)  ->  starting (launcher and kernel
    run, sockets not joined)  ->  running  ->  over

A failed or cancelled wait goes back to the first state; a kernel that dies in `running` ends the proxy,
so that Jupyter's own restart works as for any kernel.

This file has the clients' messages, the supervisor's events and the end; `cell_line` the order of cells,
`gpu_wait` the wait and its notice, `handover` the kernel.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import zmq

from bitfusion_kernel.gpu.gpu_wait import GpuWait
from bitfusion_kernel.magic.cell import MAGIC, command_lines
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.processes.messages import (
    KernelExitedEvent,
    LaunchedEvent,
    OutputEvent,
    StartedEvent,
    StoppedEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.protocol.wire import InvalidMessage, Message, Wire, is_type
from bitfusion_kernel.proxy.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.client_sockets import ClientSockets
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.kernel_view import ProxyKernelView
from bitfusion_kernel.proxy.publisher import Publisher
from bitfusion_kernel.proxy.request_queue import QueuedRequest

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.gpu.kernel_starter import KernelStarter
    from bitfusion_kernel.processes.messages import Event
    from bitfusion_kernel.processes.supervisor_link import SupervisorLink
    from bitfusion_kernel.protocol.connection_file import ConnectionInfo
    from bitfusion_kernel.proxy.kernel_link import KernelLink
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

MAGIC_WORD = MAGIC.encode()

INTERRUPT_DELAY = 0.15
"""Seconds before an interrupt ends a wait: every shutdown and restart sends one 2 ms ahead of itself."""

LAST_WORDS_DELAY = 0.3
"""Seconds a dead kernel's wrapper gets to say its last words and its status before the cell is told."""

END_PATIENCE = 2.0
"""Seconds the proxy waits at its end for the wrapper to give the GPU back; the supervisor continues."""

OUTPUT_DRAIN = 0.03
"""Seconds for the output relay to pass on what the proxy said last."""

PARENT_POLL = 1.0
"""Seconds between looks at Jupyter's process where there are no pidfds."""


BETTER_FROM_THE_KERNEL = frozenset(("complete_request", "inspect_request", "history_request"))
"""Answered by the kernel if it is starting already: 0.2 s later, but with what it knows."""


class Proxy:
    """Made once by `proxy.process`; `run` returns the exit status."""

    def __init__(
        self, info: ConnectionInfo, supervisor: SupervisorLink, starter: KernelStarter, wrapped: WrappedKernel
    ) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.wire = Wire(info.key, info.signature_scheme, os.environ.get("USER", ""))
        self.clients = ClientSockets(self.context, info)
        self.loop = EventLoop()
        self.publisher = Publisher(self.wire, self.clients.iopub)
        self.supervisor = supervisor
        self.starter = starter
        self.line = CellScheduler(self)
        self.wait = GpuWait(self)
        self.running = False
        self.kernel_view = ProxyKernelView(starter, lambda: self.running)
        self._offline = OfflineReplies(
            wrapped.kernel_info, self._history, _completeness(wrapped.language), starter.files_prefix
        )
        self._kernel: KernelLink | None = None
        self._wrapper_pid: int | None = None
        self._shell_seen = False
        self._shutting_down = False
        self._exit_status: int | None = None

    @property
    def kernel(self) -> KernelLink:
        """The kernel; only while `running`."""
        assert self._kernel is not None
        return self._kernel

    def run(self) -> int:
        """Serve until shutdown, death of the kernel, or death of Jupyter."""
        self.loop.on_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._on_signal)
        self.publisher.status("starting")
        self.watch_shell()
        self.loop.on(self.clients.control, self._on_control)
        self.loop.on(self.clients.stdin, self._on_stdin)
        self.loop.on(self.clients.iopub, self.on_subscription)
        self.loop.on(self.supervisor.fileno(), self._on_supervisor)
        self._watch_parent()
        from bitfusion_kernel.proxy.magic_socket import MagicSocket

        magic_socket = MagicSocket(self)
        self.loop.run()
        magic_socket.close()
        return self._finish()

    def _watch_parent(self) -> None:
        if not os.environ.get("JPY_PARENT_PID"):
            return  # started by hand, as ipykernel sees it
        from bitfusion_kernel.processes.process_watch import ProcessWatch

        parent = ProcessWatch(os.getppid())
        if parent.fd is not None:
            self.loop.on(parent.fd, lambda: self.end(1))
            return

        def look() -> None:
            if parent.alive:
                self.loop.set_timer("parent", time.monotonic() + PARENT_POLL, look)
            else:
                self.end(1)

        look()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self._interrupt()
        else:
            self.end(128 + number)

    # -- what clients send ---------------------------------------------------------------------

    def watch_shell(self) -> None:
        """Read shell (again)."""
        self.loop.on(self.clients.shell, self._on_shell)

    def _receive(self, socket: zmq.Socket[bytes]) -> Iterator[Message]:
        while True:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                yield self.wire.read(frames)
            except InvalidMessage:
                continue

    def on_subscription(self) -> None:
        """A client has subscribed to iopub, or left."""
        inlet: zmq.Socket[bytes] = self.publisher.iopub  # type: ignore[assignment]  # an XPUB, before and after
        event = inlet.recv()
        if event[:1] == b"\x01":
            self.publisher.welcome(event[1:])

    def _on_shell(self) -> None:
        if self.running:
            self._relay_shell()
        else:
            self.read_shell()
        self.line.advance()

    def read_shell(self) -> None:
        """Take in all that has arrived on shell."""
        for message in self._receive(self.clients.shell):
            self._enter(message)

    def _relay_shell(self) -> None:
        """The hot path: to the kernel as it came; the proxy's account of cells is kept after sending."""
        line, kernel = self.line, self.kernel
        while self.loop.watches(self.clients.shell):
            try:
                frames = self.clients.shell.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            may_be_ours = MAGIC_WORD in frames[-1] or b"shutdown_request" in frames[-4:][0]
            relayed = not may_be_ours and line.clear and kernel.send_shell(frames)
            if relayed and not is_type(frames, b"execute_request"):
                continue
            try:
                message = self.wire.read(frames)
            except InvalidMessage:
                continue
            if relayed:
                line.account(QueuedRequest(message, time.monotonic()))
            else:
                self._enter(message)
                line.advance()

    def _enter(self, message: Message) -> None:
        """One shell message: answered now, or put in line."""
        self._shell_seen = True
        if message.type == "shutdown_request":  # where clients sent it before protocol 5.0
            self._on_shutdown(message, self.clients.shell)
            return
        if message.type == "execute_request":
            silent = message.content.get("silent", False)
            commands = None if silent else command_lines(str(message.content.get("code", "")))
            self.line.append(QueuedRequest(message, time.monotonic(), commands))
            return
        soon = self._kernel_answers_soon(message)
        reply = None if soon else self._offline.reply(message.type, message.content)
        if reply is not None:
            self.publisher.answer(self.clients.shell, message, reply)
        else:
            self.line.append(QueuedRequest(message, time.monotonic()))

    def _kernel_answers_soon(self, message: Message) -> bool:
        """Whether a request is left to the kernel: it runs, or it is starting and knows better than we."""
        acquisition = self.starter.acquisition
        starting = acquisition is not None and acquisition.granted and not acquisition.cancelled
        return self.running or (starting and message.type in BETTER_FROM_THE_KERNEL)

    def _on_control(self) -> None:
        for message in self._receive(self.clients.control):
            if message.type == "shutdown_request":
                self._on_shutdown(message, self.clients.control)
            elif message.type == "interrupt_request" and not (
                self.running and self.line.command_cell is None
            ):
                self.publisher.answer(self.clients.control, message, {"status": "ok"})
                self._interrupt()
            elif self.running:
                self.kernel.send_control(message.frames)
            else:
                reply = self._offline.reply(message.type, message.content)
                if reply is not None:
                    self.publisher.answer(self.clients.control, message, reply)
                else:
                    needs_kernel = self._offline.needs_kernel(message.type)
                    self.wait.hold_control(message, needs_kernel=needs_kernel)

    def _on_stdin(self) -> None:
        for message in self._receive(self.clients.stdin):
            if self.running:
                self.kernel.send_stdin(message.frames)

    def _interrupt(self) -> None:
        """To whatever runs: a client command of a `%bitfusion` cell, the kernel, or the wait."""
        if self.line.command_cell is not None and self.line.command_cell.interrupt():
            return
        if self.running:
            self.kernel.send_control(self.wire.build("interrupt_request", {}))
        elif self._shell_seen:  # else it was meant for the kernel before a restart
            self.loop.set_timer("interrupt", time.monotonic() + INTERRUPT_DELAY, self.wait.cancel)

    def _on_shutdown(self, request: Message, socket: zmq.Socket[bytes]) -> None:
        self._shutting_down = True
        self.loop.cancel_timer("interrupt")
        if self.running and socket is self.clients.control:
            self.kernel.send_control(request.frames)  # the kernel answers and ends, and we with it
            return
        content = {"status": "ok", "restart": bool(request.content.get("restart", False))}
        self.publisher.status("busy", request.header)
        self.publisher.reply(socket, request, content)
        self.publisher.publish("shutdown_reply", content, request.header)
        self.publisher.status("idle", request.header)
        self.end(0)

    # -- the supervisor's events ----------------------------------------------------------------

    def _on_supervisor(self) -> None:
        for event in self.supervisor.events():
            self._on_event(event)
        if self.supervisor.closed:
            self._supervisor_died()

    def _on_event(self, event: Event) -> None:
        acquisition = self.starter.acquisition
        if isinstance(event, StartedEvent):
            self._wrapper_pid = event.pid
        elif acquisition is None:
            return
        elif isinstance(event, OutputEvent):
            place = acquisition.place
            if not acquisition.on_line(event.text):
                _pass_on_to_stderr(event.text)
            elif acquisition.place != place:
                self.wait.refresh()
        elif isinstance(event, LaunchedEvent):
            acquisition.on_launched(event, time.monotonic())
            if not acquisition.cancelled:
                from bitfusion_kernel.proxy.kernel_link import KernelLink

                self._kernel = KernelLink(self)
        elif isinstance(event, KernelExitedEvent):
            acquisition.kernel_status = event.status
            if self.running:
                self.loop.set_timer("death", time.monotonic() + LAST_WORDS_DELAY, self._kernel_died)
        elif isinstance(event, WrapperExitedEvent) and event.number == acquisition.number:
            acquisition.wrapper_status = event.status
            self._wrapper_pid = None
            if self.running:
                self._kernel_died()
            else:
                self._wait_failed(acquisition)

    def on_running(self) -> None:
        """Called by `handover` when the kernel answers: what has waited goes to it."""
        self.running = True
        self.loop.cancel_timer("interrupt")
        self.loop.cancel_timer("silent")
        for message in self.wait.held_control:
            self.kernel.send_control(message.frames)
        self.wait.held_control.clear()
        if self.line.command_cell is not None:
            self.line.command_cell.on_running()
        self.line.advance()

    def _wait_failed(self, acquisition: Acquisition) -> None:
        """The wrapper ended before the kernel answered."""
        self.starter.last_acquisition, self.starter.acquisition = acquisition, None
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        for entry in self.line.queue.take_where(lambda e: e.message.type in BETTER_FROM_THE_KERNEL):
            self._enter(entry.message)
        if not acquisition.cancelled:
            self.wait.fail(acquisition.why_it_ended())
        if self.line.command_cell is not None:
            self.line.command_cell.on_wait_over()
        self.line.advance()

    # -- ends ----------------------------------------------------------------------------------

    def _kernel_died(self) -> None:
        """The running cell says why, then the proxy ends as a plain kernel would."""
        acquisition = self.starter.acquisition
        if acquisition is None or self._exit_status is not None:
            return
        self.kernel.relay_last_words()
        if self._shutting_down or acquisition.kernel_status == 0:
            self.end(0)
            return
        self.line.fail_running(acquisition.why_it_ended())
        self.end(1)

    def _supervisor_died(self) -> None:
        from bitfusion_client.errors import WrapperDied
        from bitfusion_kernel.processes.process_watch import end_orphan

        self.loop.off(self.supervisor.fileno())
        acquisition = self.starter.acquisition
        asked = acquisition.request if acquisition is not None else ""
        error = WrapperDied(asked, "the process that kept `bitfusion run` was killed")
        if self.running:
            self.line.fail_running(error)
        else:
            self.wait.fail(error)
        if self._wrapper_pid is not None:
            end_orphan(self._wrapper_pid, acquisition.kernel_pid if acquisition is not None else None)
        self.end(1)

    def end(self, status: int) -> None:
        """Leave the loop."""
        if self._exit_status is None:
            self._exit_status = status
            self.loop.stop()

    def _finish(self) -> int:
        """Give the GPU back and let the last messages leave."""
        self.supervisor.stop()
        if self.running:
            time.sleep(OUTPUT_DRAIN)
        self._await_release()
        if self.supervisor.closed:
            from bitfusion_kernel.processes import private_folder

            private_folder.remove(self.supervisor.folder)
        for socket in (self.clients.shell, self.clients.control, self.clients.stdin):
            socket.close(linger=500)
        if self._kernel is not None:
            self._kernel.close()
        if not self.running:
            self.clients.iopub.close(linger=500)
        self.context.term()
        return self._exit_status or 0

    def _await_release(self) -> None:
        deadline = time.monotonic() + END_PATIENCE
        acquisition = self.starter.acquisition
        ended = acquisition is None or acquisition.wrapper_status is not None or self.supervisor.closed
        while not ended and (left := deadline - time.monotonic()) > 0:
            zmq.select([self.supervisor.fileno()], [], [], left)
            events = self.supervisor.events()
            ended = self.supervisor.closed or any(
                isinstance(event, (WrapperExitedEvent, StoppedEvent)) for event in events
            )

    # -- offline replies that need more than a table ------------------------------------------------

    def _history(self, content: dict[str, Any]) -> dict[str, Any]:
        from bitfusion_kernel.offline.history import history_reply

        return history_reply(content, self.starter.kernel_options, os.environ)


def _completeness(language: str) -> Callable[[str], dict[str, Any]]:
    def reply(code: str) -> dict[str, Any]:
        from bitfusion_kernel.offline.code_completeness import is_complete_reply

        return is_complete_reply(code, language)

    return reply


def _pass_on_to_stderr(line: str) -> None:
    """What the kernel wrote past IPython, for Jupyter's log; dropped if nobody reads that."""
    try:
        if select.select([], [2], [], 0)[1]:  # then at least PIPE_BUF bytes can be written without blocking
            os.write(2, line.encode()[: select.PIPE_BUF - 1] + b"\n")
    except (OSError, ValueError):
        return
