"""One wrapper (`bitfusion run`) with its launcher and kernel: starting it, ending all in order."""

from __future__ import annotations

import os
import signal
import socket
import time

from bitfusion_kernel.processes import reaper
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    Event,
    KernelExitedEvent,
    LaunchedEvent,
    StartCommand,
    StopCommand,
)
from bitfusion_kernel.processes.process_watch import ProcessWatch, pid_space

QUEUED_WRAPPER_PATIENCE = 0.4
"""Seconds a wrapper that holds nothing yet gets after SIGTERM, before SIGKILL."""

RELEASING_WRAPPER_PATIENCE = 10.0
"""Seconds a wrapper whose kernel has ended gets to give its GPUs back, before SIGTERM and SIGKILL."""


class Wrapper:
    """A wrapper that runs. The supervisor has at most one; it is the wrapper's parent."""

    def __init__(self, number: int, pid: int, listener: socket.socket, socket_path: str) -> None:
        self.number = number
        self.process = ProcessWatch(pid)
        self.stopping = False
        """Whether the proxy has asked for its end."""
        self._listener = listener
        self._socket_path = socket_path
        self._launcher: MessageConnection | None = None
        self._kernel: ProcessWatch | None = None
        self._launcher_pid: int | None = None
        self._next_signal: int | None = None
        self._next_signal_at = 0.0
        self._others_children: frozenset[int] | None = None

    @classmethod
    def start(cls, command: StartCommand, stdout: int, stderr: int) -> Wrapper:
        """Start one, in a process group of its own. Raises OSError if it can't be executed."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            _listen(listener, command.socket_path)
            pid = _spawn(command.argv, command.environment, stdout, stderr)
        except OSError:
            listener.close()
            raise
        return cls(command.number, pid, listener, command.socket_path)

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
        if self.stopping:  # granted at the moment it was cancelled
            self.stopping = False
            self.stop()

    def _read_launcher(self, launcher: MessageConnection) -> list[Event]:
        events: list[Event] = []
        for message in launcher.receive():
            if isinstance(message, LaunchedEvent):
                message = self._note_pids(message)
            elif isinstance(message, KernelExitedEvent):
                self._allow_release()
            else:
                continue
            events.append(message)
        if launcher.closed:
            self._kill_kernel()
            self._allow_release()
        return events

    def _note_pids(self, event: LaunchedEvent) -> LaunchedEvent:
        """Watch the kernel if it is numbered here; the event for the proxy."""
        if not event.pid_space or event.pid_space != pid_space():
            return LaunchedEvent(0, 0, event.environment, event.pid_space)
        self._kernel = ProcessWatch(event.kernel_pid)
        self._launcher_pid = event.launcher_pid
        return event

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
            if self._kernel is None and self._others_children is None:
                reaper.adopt_orphans()  # a kernel may have been started that nobody has told of
                self._others_children = reaper.children()
            self.process.kill_group(signal.SIGKILL)
            self._signal_after(QUEUED_WRAPPER_PATIENCE, signal.SIGKILL)
        else:
            self._terminate()

    def reap(self) -> int | None:
        """The wrapper's status once it has ended, else None. A negative status is a signal's number."""
        pid, status = os.waitpid(self.process.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def finish(self) -> list[Event]:
        """After the wrapper's end: kill what is left of the kernel, close everything; the last events."""
        events: list[Event] = []
        if self._launcher is not None and not self._launcher.closed:
            events = self._read_launcher(self._launcher)
        self._kill_kernel()
        if self._others_children is not None:
            reaper.end_strays(self._others_children)
        if self._launcher is not None:
            self._launcher.send(StopCommand())
            self._launcher.close()
        self._listener.close()
        try:
            os.unlink(self._socket_path)
        except OSError:
            pass
        self.process.close()
        if self._kernel is not None:
            self._kernel.close()
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
