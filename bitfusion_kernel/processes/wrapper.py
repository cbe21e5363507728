"""One wrapper (`bitfusion run`) with its launcher and kernel: starting it, ending all in order."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes import reaper
from bitfusion_kernel.processes.held_file import HeldFile
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    Event,
    KernelCommand,
    KernelExitedEvent,
    LaunchedEvent,
    NextKernelCommand,
    ParkCommand,
    SignalCommand,
    StartCommand,
    StopCommand,
    WatchCommand,
    WorkingEvent,
)
from bitfusion_kernel.processes.process_watch import ProcessWatch, pid_space
from bitfusion_kernel.processes.wrapper_output import WrapperOutput

if TYPE_CHECKING:
    from collections.abc import Collection

QUEUED_WRAPPER_PATIENCE = 1.5
"""Seconds a wrapper that holds nothing yet gets after SIGTERM, before SIGKILL: some have a pod to delete."""

RELEASING_WRAPPER_PATIENCE = 10.0
"""Seconds a wrapper whose kernel has ended gets to give its GPUs back, before SIGTERM and SIGKILL."""


class Wrapper:
    """A wrapper that runs; the supervisor is its parent."""

    def __init__(
        self,
        started: StartCommand,
        pid: int,
        listener: socket.socket,
        output: WrapperOutput,
        held_file: HeldFile | None,
    ) -> None:
        self.output = output
        self._held_file = held_file
        self.started = started
        self.started_at = time.monotonic()
        self.process = ProcessWatch(pid)
        self.stopping = False
        """Whether its end is wanted."""
        self._kernel_number = 0  # of the kernel that the proxy has, as the launcher counts them
        self._told_kernels = 0  # the largest number of which the launcher has been told
        self.kernel_runs = False
        """Whether there is a kernel, as far as the launcher has told."""
        self.parked = False
        """Whether no kernel is wanted now."""
        self.granted_at = 0.0
        """When the launcher came; 0 if it has not."""
        self._wanted: KernelCommand | None = None
        self._next: _NextKernel | None = None
        self._listener = listener
        self._launcher: MessageConnection | None = None
        self._kernel: ProcessWatch | None = None
        self._launcher_pid: int | None = None
        self._next_signal: int | None = None
        self._next_signal_at = 0.0

    @classmethod
    def start(cls, command: StartCommand, output: WrapperOutput) -> Wrapper:
        """Start one, in a process group of its own. Raises OSError if it can't be executed."""
        held_file = None
        if command.held_file:
            with contextlib.suppress(OSError):  # then the wrapper misses it, and tells
                held_file = HeldFile(command.held_file)
        listener = socket.socket(socket.AF_UNIX)
        try:
            if command.folder:
                os.chdir(command.folder)
            _listen(listener, command.socket_path)
            pid = _spawn(command.argv, command.environment, *output.write_ends)
        except OSError:
            listener.close()
            if held_file is not None:
                held_file.release()
            raise
        return cls(command, pid, listener, output, held_file)

    # -- what the supervisor's loop asks -----------------------------------------------------------

    @property
    def launcher_source(self) -> socket.socket | MessageConnection | None:
        """What poll() shall wait for: the launcher's connection, then its messages, then nothing."""
        if self._launcher is None:
            return self._listener
        return None if self._launcher.closed else self._launcher

    def on_launcher_ready(self) -> list[Event]:
        """The launcher connects or sends: the events for the proxy."""
        if self._launcher is None:
            self._accept_launcher()
            return []
        return self._read_launcher(self._launcher)

    @property
    def granted(self) -> bool:
        """Whether it has GPUs: its program runs."""
        return self._launcher is not None

    @property
    def descendants(self) -> list[int]:
        """What ends with the wrapper, for `reaper.reap`: the launcher, and the kernel's process group."""
        kernel = [] if self._kernel is None else [-self._kernel.pid]
        return kernel if self._launcher_pid is None else [self._launcher_pid, *kernel]

    @property
    def seconds_to_next_signal(self) -> float | None:
        """When `on_time` has something to do; None if only the wrapper's end is waited for."""
        return None if self._next_signal is None else max(0.0, self._next_signal_at - time.monotonic())

    # -- the launcher ------------------------------------------------------------------------------

    def _accept_launcher(self) -> None:
        connection, _ = self._listener.accept()
        self._launcher = MessageConnection(connection)
        self.granted_at = time.monotonic()
        if self.stopping:  # granted at the moment it was cancelled
            self.stopping = False
            self.stop()
        elif self.parked:
            self.park(0)
        elif self._wanted is not None:
            self.run_kernel(self._wanted)

    def _read_launcher(self, launcher: MessageConnection) -> list[Event]:
        events: list[Event] = []
        for message in launcher.receive():
            if isinstance(message, LaunchedEvent):
                message = self._note_pids(message)
            elif isinstance(message, KernelExitedEvent):
                self._note_end()
            elif not isinstance(message, WorkingEvent):
                continue
            if message.kernel == self._kernel_number:
                events.append(message)
        if launcher.closed:
            self._kill_kernel()
            self._allow_release()
        return events

    def _note_pids(self, event: LaunchedEvent) -> LaunchedEvent:
        """Watch the kernel if it is numbered here; the event for the proxy."""
        self.kernel_runs = True
        if not event.pid_space or event.pid_space != pid_space():
            event = LaunchedEvent(0, 0, event.environment, event.pid_space, event.kernel)
        else:
            self._kernel = ProcessWatch(event.kernel_pid)
            self._launcher_pid = event.launcher_pid
        if self._next is not None and event.kernel == self._next.number > 0:
            self._next.launched = event
        return event

    def _note_end(self) -> None:
        """A kernel has ended, and its number may be another process's."""
        self.kernel_runs = False
        if self.next_runs:
            self._next = None  # this is its end
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        if self.stopping:
            self._allow_release()
        elif self._next is not None:
            self._next.number = self._tell_launcher(self._next.command)

    def pass_on(self, command: SignalCommand | WatchCommand) -> None:
        """Have the launcher do it, if there is one."""
        if self._launcher is not None:
            self._launcher.send(command)

    def park(self, seconds: float) -> None:
        """Keep the lease, or the place in the queue, without a kernel: one that runs gets so many seconds."""
        self.parked, self._wanted, self._next = True, None, None
        if self._launcher is not None:
            self._launcher.send(ParkCommand(seconds))

    def prepare(self, command: NextKernelCommand) -> None:
        """While parked with a lease: run this as soon as the kernel before has ended, for the next proxy."""
        if self._launcher is None or not self.parked or self.next_runs:
            return
        self._next = _NextKernel(command)
        if not self.kernel_runs:
            self._next.number = self._tell_launcher(command)

    @property
    def next_runs(self) -> bool:
        """Whether the kernel that was prepared has been started, and has not ended since."""
        return self._next is not None and self._next.number > 0

    def run_kernel(self, command: KernelCommand) -> list[Event]:
        """Run this kernel once there is a lease, in place of any other; what has happened to it already."""
        prepared, self._next = self._next, None
        self.parked = False
        if prepared is not None and prepared.number and prepared.is_asked_for_by(command):
            self._kernel_number = prepared.number
            return [] if prepared.launched is None else [prepared.launched]
        self._wanted = command
        if self._launcher is not None:
            self._kernel_number = self._tell_launcher(command)
        return []

    def _tell_launcher(self, command: KernelCommand | NextKernelCommand) -> int:
        """Have the kernel started, in place of any other; its number, as the launcher counts them."""
        assert self._launcher is not None
        # two may have one number: what was prepared, and what takes its place
        self._told_kernels = max(self._told_kernels + 1, command.number)
        wrapped = self.started.environment
        self._launcher.send(
            KernelCommand(self._told_kernels, command.argv, command.environment, wrapped, command.folder)
        )
        return self._told_kernels

    # -- its end -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the kernel and let the wrapper release; a wrapper that still queues is told to end now."""
        if self.stopping:
            return
        self.stopping = True
        if self._launcher is not None:
            self._launcher.send(StopCommand())
            self._signal_after(RELEASING_WRAPPER_PATIENCE, signal.SIGTERM)
        else:
            self._terminate()

    def on_time(self) -> None:
        """Send the next signal if its time has come."""
        if self._next_signal is None or time.monotonic() < self._next_signal_at:
            return
        if self._next_signal == signal.SIGKILL:
            self._kill_kernel()
            self.process.kill_group(signal.SIGKILL)
            self._signal_after(QUEUED_WRAPPER_PATIENCE, signal.SIGKILL)
        else:
            self._terminate()

    def reap(self) -> int | None:
        """The wrapper's status once it has ended, else None. A negative status is a signal's number."""
        pid, status = os.waitpid(self.process.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def finish(self, others: Collection[int]) -> list[Event]:
        """After the wrapper's end: kill what is left of the kernel, close everything; the last events.

        `others` are children of the supervisor that have nothing to do with it.
        """
        events: list[Event] = []
        if self._launcher is not None and not self._launcher.closed:
            events = self._read_launcher(self._launcher)
        self._kill_kernel()
        reaper.end_strays(others)  # what has left the kernel's group, or a kernel that nobody has told of
        if self._launcher is not None:
            self._launcher.send(StopCommand())
            self._launcher.close()
        self._listener.close()
        try:
            os.unlink(self.started.socket_path)
        except OSError:
            pass
        self.process.close()
        if self._kernel is not None:
            self._kernel.close()
        if self._held_file is not None:
            self._held_file.release()
        return events

    def _terminate(self) -> None:
        try:
            os.kill(self.process.pid, signal.SIGTERM)  # our unreaped child: the number is nobody else's
        except ProcessLookupError:
            pass
        self._signal_after(QUEUED_WRAPPER_PATIENCE, signal.SIGKILL)

    def _allow_release(self) -> None:
        """The kernel is over, and with it the wrapper's program: the wrapper only has to release."""
        if self._next_signal is None:
            self._signal_after(RELEASING_WRAPPER_PATIENCE, signal.SIGTERM)

    def _signal_after(self, seconds: float, number: int) -> None:
        self._next_signal = number
        self._next_signal_at = time.monotonic() + seconds

    def _kill_kernel(self) -> None:
        """The launcher's task, for a launcher that is gone or about to be killed."""
        if self._kernel is not None:
            self._kernel.kill_group(signal.SIGKILL)


class _NextKernel:
    """One that is started before its proxy comes."""

    def __init__(self, command: NextKernelCommand) -> None:
        self.command = command
        self.number = 0
        """As the launcher counts; 0 before it has been told."""
        self.launched: LaunchedEvent | None = None

    def is_asked_for_by(self, wanted: KernelCommand) -> bool:
        """Whether it is what the proxy wants; the number names the kernel's sockets."""
        mine = self.command
        same = mine.number == wanted.number and mine.argv == wanted.argv
        return same and mine.environment == wanted.environment and mine.folder == wanted.folder


def _listen(listener: socket.socket, path: str) -> None:
    try:
        listener.bind(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    listener.listen(1)


def _spawn(argv: list[str], environment: dict[str, str], stdout: int, stderr: int) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
            ],
            setpgroup=0,
            setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP],
            setsigmask=[],
        )
    finally:
        os.close(null)
