"""The launcher's loop: keeps the lease, runs one kernel after another on it, and ends with all of them.

It connects to the supervisor, says which processes there are and what the wrapper put into the
environment, and then watches three things by file descriptor: the kernel, its own parent (the wrapper) and
the supervisor. When the kernel ends, the lease stays until the supervisor wants another kernel or the end.
When wrapper or supervisor end, so does everything: the kernel with its whole process group, what has left
that group, and the launcher; the lease, whose lock the launcher shares with the wrapper, ends with it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.pod.oom_kills import OomKills
from bitfusion_kernel.processes import kernel_process, reaper
from bitfusion_kernel.processes.kernel_process import KernelProcess
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    Command,
    KernelCommand,
    KernelExitedEvent,
    LaunchedEvent,
    ParkCommand,
    SignalCommand,
    StopCommand,
    WatchCommand,
    WorkingEvent,
)
from bitfusion_kernel.processes.process_watch import ProcessWatch, pid_space
from bitfusion_kernel.processes.work_watch import WorkWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    StartKernel = Callable[[list[str], Mapping[str, str]], int]

REPORTED_VARIABLES = ("BITFUSION_POOL_", "BF_", "CUDA_VISIBLE_DEVICES")
"""Variables that begin so are told to the proxy: what the wrapper says about the lease."""

LONGEST_POLL = 1.0
"""Seconds after which the wrapper is looked at in any case."""


def guard(
    kernel_pid: int,
    wrapper_pid: int,
    socket_path: str,
    start_kernel: StartKernel,
    others: frozenset[int],
) -> int:
    """Guard the lease to its end; returns the last kernel's status. Called with SIGINT, SIGTERM blocked.

    `others` are the children that there were before the kernel: not its own, so they are left alone.
    """
    signals = _signals_as_bytes()
    supervisor = _connect(socket_path)
    return _Guard(KernelProcess(kernel_pid), wrapper_pid, signals, supervisor, start_kernel, others).run()


def _signals_as_bytes() -> int:
    """Let signals arrive as bytes in a pipe: its read end."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):  # SIGINT is meant for the kernel's group
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    return read_end


def _connect(socket_path: str) -> MessageConnection | None:
    """The supervisor, or None if there is none: then there shall be no kernel."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(socket_path)
    except OSError as error:
        connection.close()
        text = f"Error: cannot reach {socket_path}: {error.strerror}"
        if not os.path.exists(socket_path):
            text += "; somebody has cleaned that folder, and the next cell makes it again"
        os.write(2, f"{text}\n".encode(errors="replace"))
        return None
    return MessageConnection(connection)


class _Guard:
    def __init__(
        self,
        kernel: KernelProcess,
        wrapper_pid: int,
        signals: int,
        supervisor: MessageConnection | None,
        start_kernel: StartKernel,
        others: frozenset[int],
    ) -> None:
        self._start_kernel = start_kernel
        self._kernel: KernelProcess | None = kernel
        self._number = 0  # the kernel's
        self._next: KernelCommand | None = None
        self._kill_at: float | None = None
        self._wrapper = ProcessWatch(wrapper_pid)
        self._signals = signals
        self._supervisor = supervisor
        self._stop = supervisor is None
        self._status = 0
        self._oom_kills = OomKills(kernel.pid)
        self._tell_launched(kernel)
        self._others = others
        self._work = WorkWatch(but=self._others)

    def run(self) -> int:
        while True:
            self._look_at_kernel()
            reaper.reap_ended(() if self._kernel is None else (self._kernel.pid,))
            if self._kernel is None and self._stop:
                reaper.end_strays(self._others)
                return self._status
            if self._kernel is None and self._next is not None:
                self._start_next(self._next)
            self._tell_work()
            self._wait()

    def _tell_launched(self, kernel: KernelProcess) -> None:
        if self._supervisor is not None:
            reported = {k: v for k, v in os.environ.items() if k.startswith(REPORTED_VARIABLES)}
            told = LaunchedEvent(os.getpid(), kernel.pid, reported, pid_space(), self._number)
            self._supervisor.send(told)

    # -- the kernel --------------------------------------------------------------------------------

    def _look_at_kernel(self) -> None:
        """Kill it if its time has come; when it has ended end what is left of it, and tell."""
        kernel = self._kernel
        if kernel is None:
            return
        if self._stop or (self._kill_at is not None and time.monotonic() >= self._kill_at):
            kernel.kill()
        status = kernel.reap(wait=self._stop)
        if status is None:
            return
        self._kernel, self._kill_at, self._status = None, None, status
        if self._supervisor is not None:
            oom_kills = self._oom_kills.number if status == -signal.SIGKILL else -1
            self._supervisor.send(KernelExitedEvent(status, self._number, oom_kills=oom_kills))

    def _start_next(self, command: KernelCommand) -> None:
        self._next, self._kill_at, self._number = None, None, command.number
        environment = kernel_process.environment_on_lease(command.environment, command.wrapped, os.environ)
        try:
            if command.folder:
                os.chdir(command.folder)
            self._kernel = KernelProcess(self._start_kernel(command.argv, environment))
        except OSError as error:
            text = f"Error: cannot start the kernel {error.filename or command.argv[0]}: {error.strerror}\n"
            os.write(2, text.encode(errors="replace"))
            if self._supervisor is not None:
                self._supervisor.send(KernelExitedEvent(kernel_process.CANNOT_START, command.number))
        else:
            self._oom_kills = OomKills(self._kernel.pid)
            self._tell_launched(self._kernel)

    def _tell_work(self) -> None:
        """If it is asked for. Time passes between two looks: `_wait` never waits long."""
        kernel = None if self._kernel is None else self._kernel.pid
        seconds = self._work.look(time.monotonic(), kernel)
        if seconds and self._supervisor is not None:
            self._supervisor.send(WorkingEvent(seconds, self._number), droppable=True)

    # -- what is waited for ------------------------------------------------------------------------

    def _wait(self) -> None:
        """Read what has happened, after some time in any case."""
        poll = select.poll()
        poll.register(self._signals, select.POLLIN)
        if self._wrapper.fd is not None:
            poll.register(self._wrapper.fd, select.POLLIN)
        supervisor = self._supervisor
        if supervisor is not None and not supervisor.closed:
            supervisor.flush()  # what is reported of the environment may be larger than the socket's buffer
            poll.register(supervisor, select.POLLIN | (select.POLLOUT if supervisor.wants_write else 0))
        for fd, _ in poll.poll(self._longest_wait() * 1000):
            if fd == self._signals:
                self._stop = self._stop or signal.SIGTERM in os.read(self._signals, 4096)
            elif supervisor is not None and fd == supervisor.fileno():
                for command in supervisor.receive():
                    if isinstance(command, Command):
                        self._obey(command)
                self._stop = self._stop or supervisor.closed
            else:
                self._stop = True  # the wrapper ended
        self._stop = self._stop or os.getppid() != self._wrapper.pid

    def _longest_wait(self) -> float:
        if self._kill_at is None or self._kernel is None:
            return LONGEST_POLL
        return min(max(0.0, self._kill_at - time.monotonic()) + 0.001, LONGEST_POLL)

    def _obey(self, command: Command) -> None:
        if isinstance(command, SignalCommand):
            if self._kernel is not None:
                self._kernel.signal(command.number)
        elif isinstance(command, ParkCommand):
            self._kill_at, self._next = time.monotonic() + command.seconds, None
        elif isinstance(command, KernelCommand):
            self._kill_at, self._next = time.monotonic(), command
        elif isinstance(command, WatchCommand):
            self._work.every(command.seconds)
        elif isinstance(command, StopCommand):
            self._stop = True
