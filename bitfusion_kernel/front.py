"""The front: answers Jupyter at once, and relays to the kernel once there is one.

One loop over all sockets, one thread; only the heartbeat and, after the handover, the kernel's output run
in threads of C (`relay`). Its states, in order:

    nothing asked  ->  waiting (a wrapper runs, in the pool's queue)  ->  starting (launcher and kernel
    run, sockets not joined)  ->  running  ->  over

A failed or cancelled wait goes back to the first state; a kernel that dies in `running` ends the front,
so that Jupyter's own restart works as for any kernel.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import zmq

from bitfusion_kernel.cells import Entry, RunningCells, ShellQueue
from bitfusion_kernel.jupyter_sockets import JupyterSockets
from bitfusion_kernel.publisher import Publisher
from bitfusion_kernel.waiting_room import (
    Answer,
    Hold,
    HoldSilentCell,
    Interrupt,
    RunCommands,
    Shutdown,
    WaitingRoom,
)
from bitfusion_kernel.wire import DELIMITER, InvalidMessage, Message, Wire

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.acquisition import Acquisition
    from bitfusion_kernel.cell_commands import CommandCell
    from bitfusion_kernel.connection_file import ConnectionInfo
    from bitfusion_kernel.keeper import KeeperLink
    from bitfusion_kernel.kernel_start import KernelStarter
    from bitfusion_kernel.relay import KernelSockets, OutputRelay
    from bitfusion_kernel.wrapped_kernel import WrappedKernel

Socket = zmq.Socket[bytes] if TYPE_CHECKING else zmq.Socket

INTERRUPT_DELAY = 0.15
"""Seconds before an interrupt ends a wait: every shutdown and restart sends one 2 ms ahead of itself."""

WORDS_DELAY = 0.3
"""Seconds a dead kernel's wrapper gets to say its last words and its status before the cell is told."""

END_PATIENCE = 2.0
"""Seconds the front waits, at its end, for the wrapper to give the GPU back; the keeper goes on without it."""

OUTPUT_DRAIN = 0.03
"""Seconds for the output relay to pass on what the front said last."""


class Front:
    """Made once by `front_process`; `run` returns the exit status."""

    def __init__(
        self, info: ConnectionInfo, keeper: KeeperLink, starter: KernelStarter, wrapped: WrappedKernel
    ) -> None:
        self._context: zmq.Context[Socket] = zmq.Context()
        self._wire = Wire(info.key, info.signature_scheme, os.environ.get("USER", ""))
        self._clients = JupyterSockets(self._context, info)
        self.publisher = Publisher(self._wire, self._clients.iopub)
        self.keeper = keeper
        self.starter = starter
        self._room = WaitingRoom(wrapped.kernel_info, self._history, _completeness(wrapped.language), starter.files_prefix)
        self.queue = ShellQueue()
        self.running_cells = RunningCells()
        self._held_control: list[Message] = []
        self._answered_silently: set[str] = set()
        self._kernel: KernelSockets | None = None
        self._output: OutputRelay | None = None
        self.running = False
        self.command_cell: CommandCell | None = None
        self._notice: Notice | None = None
        self._notice_cell: Entry | None = None
        self._interrupt_at: float | None = None
        self._shell_seen = False
        self._shutting_down = False
        self._probe_at: float | None = None
        self._dead_at: float | None = None
        self._exit_status: int | None = None
        self._wrapper_pid: int | None = None
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Callable[[], None]] = {}

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until shutdown, death of the kernel, or death of Jupyter."""
        self._watch_signals_and_parent()
        self.publisher.status("starting")
        self._on(self._clients.shell, self._on_shell)
        self._on(self._clients.control, self._on_control)
        self._on(self._clients.stdin, self._on_stdin)
        self._on(self._clients.iopub, self._on_subscription)
        self._on(self.keeper.lines.fileno(), self._on_keeper)
        from bitfusion_kernel.front_socket import FrontSocket

        self._front_socket = FrontSocket(self)
        while self._exit_status is None:
            for ready, _ in self._poller.poll(self._timeout()):
                handler = self._handlers.get(ready)
                if handler is not None:
                    handler()
            self._on_time()
        return self._finish()

    def _on(self, source: Any, handler: Callable[[], None]) -> None:
        self._handlers[source] = handler
        self._poller.register(source, zmq.POLLIN)

    def off(self, source: Any) -> None:
        """Stop watching a socket or descriptor."""
        if self._handlers.pop(source, None) is not None:
            self._poller.unregister(source)

    on = _on

    def _watch_signals_and_parent(self) -> None:
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

        def on_signal() -> None:
            for number in os.read(woken, 64):
                if number == signal.SIGINT:
                    self._on_interrupt(None)
                else:
                    self.end(128 + number)

        self._on(woken, on_signal)
        if os.environ.get("JPY_PARENT_PID"):
            from bitfusion_kernel.process_watch import ProcessWatch

            self._parent: ProcessWatch | None = ProcessWatch(os.getppid())
            if self._parent.fd is not None:
                self._on(self._parent.fd, lambda: self.end(1))
        else:
            self._parent = None

    def _deadlines(self) -> Iterator[float]:
        if self._interrupt_at is not None:
            yield self._interrupt_at
        if self._probe_at is not None:
            yield self._probe_at
        if self._dead_at is not None:
            yield self._dead_at
        if self._notice is not None:
            yield self._notice.due_at
        if self.command_cell is not None and self.command_cell.deadline is not None:
            yield self.command_cell.deadline
        if not self.running:
            silent = self.queue.first_where(lambda entry: entry.is_silent and not entry.answered)
            if silent is not None:
                yield silent.arrived_at + self._silent_wait()
        if self._parent is not None and self._parent.fd is None:
            yield time.monotonic() + 1

    def _timeout(self) -> float | None:
        due = min(self._deadlines(), default=None)
        return None if due is None else max(0.0, (due - time.monotonic()) * 1000 + 0.5)

    def _on_time(self) -> None:
        now = time.monotonic()
        if self._interrupt_at is not None and now >= self._interrupt_at:
            self._interrupt_at = None
            self.cancel_wait()
        if self._probe_at is not None and now >= self._probe_at:
            self._probe()
        if self._dead_at is not None and now >= self._dead_at:
            self._kernel_died()
        if self._notice is not None and now >= self._notice.due_at:
            self._notice.show(now)
        if self.command_cell is not None:
            self.command_cell.on_time(now)
        if not self.running:
            self._answer_late_silent_cells(now)
        if self._parent is not None and self._parent.fd is None and not self._parent.alive:
            self.end(1)

    # -- what clients send ---------------------------------------------------------------------

    def _receive(self, socket: Socket) -> Iterator[Message]:
        while True:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                yield self._wire.read(frames)
            except InvalidMessage:
                continue

    def _on_subscription(self) -> None:
        frames = self.publisher.iopub.recv_multipart()  # type: ignore[attr-defined]  # an XPUB in both states
        if frames[0][:1] == b"\x01":
            self.publisher.welcome(frames[0][1:])

    def _on_shell(self) -> None:
        if self.running and not self.queue and self.command_cell is None:
            self._relay_shell()
        else:
            for message in self._receive(self._clients.shell):
                self._enter(message)
        self.advance()

    def _relay_shell(self) -> None:
        """The hot path: to the kernel as it came, unless it is a cell the front must know about."""
        assert self._kernel is not None
        while self.running and not self.queue and self.command_cell is None:
            try:
                frames = self._clients.shell.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if b'"execute_request"' in frames[frames.index(DELIMITER) + 2 if DELIMITER in frames else -1]:
                try:
                    self._enter(self._wire.read(frames))
                except InvalidMessage:
                    continue
                self.advance()
                continue
            try:
                self._kernel.shell.send_multipart(frames, zmq.NOBLOCK)
            except zmq.Again:
                try:
                    self._enter(self._wire.read(frames))
                except InvalidMessage:
                    continue

    def _enter(self, message: Message) -> None:
        """One shell message: answered now, or put in line."""
        self._shell_seen = True
        if message.type == "shutdown_request":  # legacy clients send it on shell
            self._on_shutdown(message, self._clients.shell)
            return
        decision = self._room.decide(message.type, message.content)
        if isinstance(decision, RunCommands):
            self.queue.append(Entry(message, time.monotonic(), decision.commands))
        elif not self.running and isinstance(decision, Answer):
            self.publisher.answer(self._clients.shell, message, decision.content)
        else:
            entry = Entry(message, time.monotonic())
            self.queue.append(entry)
            if isinstance(decision, HoldSilentCell) and not self.running:
                self.publisher.status("busy", message.header)

    def _on_control(self) -> None:
        for message in self._receive(self._clients.control):
            if message.type == "shutdown_request":
                self._on_shutdown(message, self._clients.control)
            elif message.type == "interrupt_request" and (not self.running or self.command_cell is not None):
                self._on_interrupt(message)
            elif self.running:
                assert self._kernel is not None
                self._kernel.control.send_multipart(message.frames, zmq.NOBLOCK)
            else:
                decision = self._room.decide(message.type, message.content)
                if isinstance(decision, Answer):
                    self.publisher.answer(self._clients.control, message, decision.content)
                else:
                    self._held_control.append(message)
                    if isinstance(decision, Hold) and decision.needs_kernel:
                        self.want_kernel()

    def _on_stdin(self) -> None:
        for message in self._receive(self._clients.stdin):
            if self._kernel is not None and self.running:
                self._kernel.stdin.send_multipart(message.frames, zmq.NOBLOCK)

    def _on_interrupt(self, request: Message | None) -> None:
        """From a message, or from SIGINT (`request` is None)."""
        if request is not None:
            self.publisher.answer(self._clients.control, request, {"status": "ok"})
        if self.command_cell is not None and self.command_cell.interrupt():
            return
        if self.running:
            assert self._kernel is not None
            self._kernel.control.send_multipart(self._wire.build("interrupt_request", {}))
        elif self._shell_seen:
            self._interrupt_at = time.monotonic() + INTERRUPT_DELAY

    def _on_shutdown(self, request: Message, socket: Socket) -> None:
        self._shutting_down = True
        self._interrupt_at = None
        if self.running and socket is self._clients.control:
            assert self._kernel is not None
            self._kernel.control.send_multipart(request.frames)  # the kernel answers, ends, and we with it
            return
        content = {"status": "ok", "restart": bool(request.content.get("restart", False))}
        self.publisher.status("busy", request.header)
        self.publisher.reply(socket, request, content)
        self.publisher.publish("shutdown_reply", content, request.header)
        self.publisher.status("idle", request.header)
        self.end(0)

    # -- the line of cells ---------------------------------------------------------------------

    def advance(self) -> None:
        """Do what can be done now with the messages in line."""
        if self.running:
            self._advance_to_kernel()
            return
        while self.command_cell is None:
            entry = self.queue.first_where(lambda e: e.is_cell or e.commands is not None)
            if entry is None:
                return
            if entry.commands is None:
                self._want_kernel_for(entry)
                if entry is self.queue.first_where(lambda e: e.is_cell or e.commands is not None):
                    return  # it waits; otherwise it has failed and the next one may try
            else:
                self.queue.remove(entry)
                self._run_commands(entry)

    def _advance_to_kernel(self) -> None:
        assert self._kernel is not None
        while (entry := self.queue.first) is not None and self.command_cell is None and self.running:
            if entry.commands is not None:
                if self.running_cells:
                    return  # its turn comes when the cells before it are done
                self.queue.pop()
                self._run_commands(entry)
                continue
            try:
                self._kernel.shell.send_multipart(entry.message.frames, zmq.NOBLOCK)
            except zmq.Again:  # the kernel's inbox is full: Jupyter's must fill up, not ours
                self.off(self._clients.shell)
                self._handlers[self._kernel.shell] = self._on_kernel_shell
                self._poller.register(self._kernel.shell, zmq.POLLIN | zmq.POLLOUT)
                return
            self.queue.pop()
            if entry.is_execute and "subshell_id" not in entry.message.header:
                self.running_cells.sent(entry)
            if entry.answered:
                self._answered_silently.add(entry.message.id)

    def _run_commands(self, entry: Entry) -> None:
        from bitfusion_kernel.cell_commands import CommandCell

        self.publisher.status("busy", entry.message.header)
        self.command_cell = CommandCell(self, entry)
        self.command_cell.proceed()

    def finish_commands(self, entry: Entry, error: BitfusionError | None) -> None:
        """Called by the command cell at its end."""
        self.command_cell = None
        self._end_notice()
        if error is None:
            self.publisher.finish_cell(self._clients.shell, entry.message)
        else:
            self._fail(entry, error)

    def _want_kernel_for(self, entry: Entry) -> None:
        from bitfusion_client.errors import BitfusionError, WaitCancelled

        try:
            if self.starter.settings.acquire == "manual" and self.starter.acquisition is None:
                raise WaitCancelled(
                    self.starter.request,
                    "this kernel takes a GPU only when it is told to (acquire = manual).",
                    "run `%bitfusion acquire` in a cell, then this cell again.",
                )
            self.want_kernel(raising=True)
        except BitfusionError as error:
            self.queue.remove(entry)
            self._fail(entry, error)
            return
        self.show_notice(entry)

    def want_kernel(self, *, raising: bool = False) -> None:
        """Start a wrapper unless there is one (also one that is still ending: then on its end)."""
        from bitfusion_client.errors import BitfusionError

        if self.starter.acquisition is not None or self._exit_status is not None:
            return
        try:
            if self.starter.failed_early is not None:
                error, self.starter.failed_early = self.starter.failed_early, None
                raise error
            self.starter.start()
        except BitfusionError:
            if raising:
                raise

    def show_notice(self, entry: Entry) -> None:
        """From now on the wait is shown in this cell."""
        if self._notice_cell is entry or self.starter.acquisition is None:
            return
        self._notice_cell = entry
        self.publisher.status("busy", entry.message.header)
        self._notice = Notice(self.publisher, entry, self.starter)

    def _end_notice(self) -> None:
        """Leave nothing of the wait behind; the notice's display is never touched again."""
        if self._notice is not None and self._notice.shown:
            self.publisher.clear(self._notice.parent)
        self._notice = None
        self._notice_cell = None

    def _fail(self, entry: Entry, error: BitfusionError) -> None:
        """An error in one cell; those queued behind it are answered as ipykernel does."""
        self.publisher.fail_cell(self._clients.shell, entry.message, error)
        if entry.stops_on_error and not entry.is_silent:
            for message in self._receive(self._clients.shell):
                self._enter(message)
            self._abort_queued()

    def _abort_queued(self) -> None:
        for entry in self.queue.take_where(lambda e: e.is_execute and not e.is_silent):
            self.publisher.abort_cell(self._clients.shell, entry.message)

    def _answer_late_silent_cells(self, now: float) -> None:
        """Clients that send silent start-up code wait for its reply; the code still runs once it can."""
        for entry in self.queue:  # type: ignore[attr-defined]  # iterator of Entry
            if entry.is_silent and not entry.answered and now >= entry.arrived_at + self._silent_wait():
                entry.answered = True
                self.publisher.finish_cell(self._clients.shell, entry.message)

    def _silent_wait(self) -> float:
        from bitfusion_client.errors import BitfusionError

        try:
            return self.starter.settings.silent_wait
        except BitfusionError:
            return 5.0

    def cancel_wait(self) -> None:
        """The user's interrupt while waiting: an error in the cell that waited, the kernel lives."""
        acquisition = self.starter.acquisition
        waiting = self._notice_cell
        if acquisition is None or waiting is None or self.running:
            return
        from bitfusion_client.errors import WaitCancelled

        acquisition.cancelled = True
        self.keeper.lines.send({"do": "stop"})
        waited = time.monotonic() - acquisition.asked_at
        self._fail_waiting(WaitCancelled(acquisition.request, f"interrupted after {waited:.0f} s of waiting"))

    def _fail_waiting(self, error: BitfusionError) -> None:
        waiting = self._notice_cell
        self._end_notice()
        for message in self._held_control:  # a debugger that was turned on must hear that it wasn't
            content = {"type": "response", "success": False, "request_seq": message.content.get("seq", 0)}
            content.update(command=message.content.get("command", ""), message=error.user_message)
            self.publisher.answer(self._clients.control, message, content)
        self._held_control.clear()
        if waiting is None:
            return
        if self.command_cell is not None and self.command_cell.entry is waiting:
            self.command_cell.fail(error)
        else:
            self.queue.remove(waiting)
            self._fail(waiting, error)

    # -- what the keeper reports ---------------------------------------------------------------

    def _on_keeper(self) -> None:
        for report in self.keeper.lines.receive():
            self._on_report(report)
        if self.keeper.lines.closed:
            self._keeper_died()

    def _on_report(self, report: dict[str, Any]) -> None:
        acquisition = self.starter.acquisition
        event = report["event"]
        if event == "started":
            self._wrapper_pid = report["pid"]
        elif acquisition is None:
            return
        elif event == "output":
            before = acquisition.place
            if not acquisition.on_line(report["text"]):
                os.write(2, report["text"].encode() + b"\n")
            elif acquisition.place != before and self._notice is not None and self._notice.shown:
                self._notice.show(time.monotonic())
        elif event == "launched":
            acquisition.on_launched(report, time.monotonic())
            if not acquisition.cancelled:
                self._join(acquisition)
        elif event == "kernel_exited":
            acquisition.kernel_status = report["status"]
            if self.running or self._kernel is not None:
                self._dead_at = time.monotonic() + WORDS_DELAY
        elif event == "wrapper_exited" and report["number"] == acquisition.number:
            acquisition.wrapper_status = report["status"]
            self._wrapper_pid = None
            self._wrapper_ended(acquisition)

    def _wrapper_ended(self, acquisition: Acquisition) -> None:
        if self.running:
            self._kernel_died()
            return
        self._dead_at = self._probe_at = None
        self.starter.last_acquisition, self.starter.acquisition = acquisition, None
        if self._kernel is not None:
            for socket in (self._kernel.control, self._kernel.iopub):
                self.off(socket)
            self._kernel.close()
            self._kernel = None
        if not acquisition.cancelled:
            self._fail_waiting(acquisition.why_it_ended())
        self.advance()

    # -- handover ------------------------------------------------------------------------------

    def _join(self, acquisition: Acquisition) -> None:
        from bitfusion_kernel.relay import KernelSockets

        assert self.starter.kernel_connection is not None
        self._kernel = KernelSockets(self._context, self.starter.kernel_connection, self._wire)
        self._on(self._kernel.control, self._on_kernel_joining)
        self._on(self._kernel.iopub, self._on_kernel_joining)
        self._probe()

    def _probe(self) -> None:
        from bitfusion_kernel.relay import PROBE_EVERY

        if self._kernel is not None and not self.running:
            self._kernel.probe()
            self._probe_at = time.monotonic() + PROBE_EVERY

    def _on_kernel_joining(self) -> None:
        kernel = self._kernel
        if kernel is None or self.running:
            return
        try:
            if kernel.control.poll(0):
                kernel.on_control()
            while not kernel.ready and kernel.iopub.poll(0):
                frames = kernel.on_iopub()
                if frames is not None:
                    self._clients.iopub.send_multipart(frames)
        except zmq.Again:
            return
        if kernel.ready:
            self._hand_over(kernel)

    def _hand_over(self, kernel: KernelSockets) -> None:
        """From here on the kernel answers. The notice goes first, then the cells that waited."""
        from bitfusion_kernel.relay import OutputRelay

        self._probe_at = None
        self._interrupt_at = None
        self._end_notice()
        self.off(kernel.iopub)
        self.off(self._clients.iopub)
        self._output = OutputRelay(self._context, self._clients.iopub, kernel.iopub)
        self.publisher.iopub = self._output.inlet
        self._on(self._output.inlet, self._on_subscription)
        self._on(kernel.control, self._on_kernel_control)
        self._on(kernel.shell, self._on_kernel_shell)
        self._on(kernel.stdin, self._on_kernel_stdin)
        self.running = True
        for message in self._held_control:
            kernel.control.send_multipart(message.frames)
        self._held_control.clear()
        if self.command_cell is not None:
            self.command_cell.on_running()
        self.advance()

    def _on_kernel_control(self) -> None:
        for frames in self._from_kernel("control"):
            if len(frames) > 6 and frames[0] != DELIMITER:  # not an answer to a probe or to our interrupt
                self._clients.control.send_multipart(frames)

    def _on_kernel_stdin(self) -> None:
        for frames in self._from_kernel("stdin"):
            self._clients.stdin.send_multipart(frames)

    def _on_kernel_shell(self) -> None:
        if self._clients.shell not in self._handlers and self._kernel is not None:
            self._on(self._clients.shell, self._on_shell)  # there may be room in the kernel's inbox again
            self._on(self._kernel.shell, self._on_kernel_shell)
        for frames in self._from_kernel("shell"):
            if b'"execute_reply"' in frames[frames.index(DELIMITER) + 2]:
                if self._on_execute_reply(self._wire.read(frames)):
                    self._clients.shell.send_multipart(frames)
            else:
                self._clients.shell.send_multipart(frames)
        self.advance()

    def _on_execute_reply(self, reply: Message) -> bool:
        """Keep the books; False if this reply was already given by the front."""
        request_id = str(reply.parent_header.get("msg_id"))
        entry = self.running_cells.answered(request_id)
        failed = reply.content.get("status") == "error"
        if failed and entry is not None and entry.stops_on_error and not entry.is_silent:
            self._abort_queued()
        if request_id in self._answered_silently:
            self._answered_silently.discard(request_id)
            return False
        return True

    def _from_kernel(self, channel: str) -> Iterator[list[bytes]]:
        socket: Socket = getattr(self._kernel, channel)
        while True:
            try:
                yield socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return

    # -- ends ----------------------------------------------------------------------------------

    def _kernel_died(self) -> None:
        """The running cell says why, then the front ends as a plain kernel would."""
        acquisition = self.starter.acquisition
        self._dead_at = None
        if not self.running or acquisition is None or self._exit_status is not None:
            return
        for channel in ("shell", "control"):
            for frames in self._from_kernel(channel):  # what it said before it died
                if channel == "shell" and b'"execute_reply"' in frames[frames.index(DELIMITER) + 2]:
                    self._on_execute_reply(self._wire.read(frames))
                if frames[0] != DELIMITER:
                    getattr(self._clients, channel).send_multipart(frames)
        status = acquisition.kernel_status
        if not self._shutting_down and status != 0:
            self._fail_running(acquisition.why_it_ended())
        self.end(0 if status == 0 or self._shutting_down else 1)

    def _fail_running(self, error: BitfusionError) -> None:
        told = False
        for entry in self.running_cells.take_all():
            if entry.is_silent or told:
                self.publisher.abort_cell(self._clients.shell, entry.message)
            else:
                self.publisher.fail_cell(self._clients.shell, entry.message, error)
                told = True
        self._abort_queued()

    def _keeper_died(self) -> None:
        from bitfusion_client.errors import WrapperDied

        self.off(self.keeper.lines.fileno())
        acquisition = self.starter.acquisition
        error = WrapperDied(
            acquisition.request if acquisition else "", "the keeper of `bitfusion run` was killed"
        )
        if self.running:
            self._fail_running(error)
        else:
            self._fail_waiting(error)
        if self._wrapper_pid is not None:
            from bitfusion_kernel.process_watch import end_orphan

            end_orphan(self._wrapper_pid, acquisition.kernel_pid if acquisition else None)
        self.end(1)

    def end(self, status: int) -> None:
        """Leave the loop."""
        if self._exit_status is None:
            self._exit_status = status

    def _finish(self) -> int:
        """Give the GPU back and let the last messages leave."""
        self.keeper.lines.send({"do": "stop"})
        if self._output is not None:
            time.sleep(OUTPUT_DRAIN)
        deadline = time.monotonic() + END_PATIENCE
        ended = self.starter.acquisition is None or self.keeper.lines.closed
        while not ended and (left := deadline - time.monotonic()) > 0:
            zmq.select([self.keeper.lines.fileno()], [], [], left)
            reports = [report["event"] for report in self.keeper.lines.receive()]
            ended = self.keeper.lines.closed or "wrapper_exited" in reports or "stopped" in reports
        self._front_socket.close()
        if self.keeper.lines.closed:
            from bitfusion_kernel import private_folder

            private_folder.remove(self.keeper.folder)
        for socket in (self._clients.shell, self._clients.control, self._clients.stdin):
            socket.close(linger=500)
        if self._output is None:
            self._clients.iopub.close(linger=500)
        else:
            self._output.inlet.close(linger=500)
        if self._kernel is not None:
            for socket in (self._kernel.shell, self._kernel.control, self._kernel.stdin):
                socket.close(linger=0)
            if self._output is None:
                self._kernel.iopub.close(linger=0)
        self._context.term()
        assert self._exit_status is not None
        return self._exit_status

    def _history(self, content: dict[str, Any]) -> dict[str, Any]:
        from bitfusion_kernel.history import history_reply

        return history_reply(content, self.starter.kernel_options, os.environ)


def _completeness(language: str) -> Callable[[str], dict[str, Any]]:
    def reply(code: str) -> dict[str, Any]:
        from bitfusion_kernel.code_completeness import is_complete_reply

        return is_complete_reply(code, language)

    return reply


class Notice:
    """The display of one wait in one cell; see `waiting_notice` for its words."""

    def __init__(self, publisher: Publisher, entry: Entry, starter: KernelStarter) -> None:
        from bitfusion_kernel import waiting_notice

        self._publisher = publisher
        self._starter = starter
        self._render = waiting_notice.render
        self._every = waiting_notice.UPDATE_EVERY
        self._since = time.monotonic()
        self._display_id = f"bitfusion-wait-{os.urandom(8).hex()}"
        self.parent = entry.message.header
        self.shown = False
        self.due_at = self._since + waiting_notice.SHOW_AFTER

    def show(self, now: float) -> None:
        """Show it, or bring it up to date."""
        acquisition = self._starter.acquisition
        self.due_at = now + self._every
        if acquisition is None or (acquisition.granted and not self.shown):
            return  # a wait that is over before it was shown would only flicker
        data = self._render(
            acquisition.request.describe(),
            now - self._since,
            acquisition.place,
            acquisition.of,
            acquisition.ahead,
            acquisition.granted,
        )
        self._publisher.display(data, self._display_id, self.parent, update=self.shown)
        self.shown = True
