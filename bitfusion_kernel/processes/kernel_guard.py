"""The launcher's loop: watches kernel, wrapper and supervisor, and ends the kernel when any of them ends.

It connects to the supervisor, says which processes there are and what the wrapper put into the
environment, and then watches three things by file descriptor: the kernel, its own parent (the wrapper) and
the supervisor. Whichever ends first, the kernel's whole process group is killed and the launcher ends; the
lease, whose lock the launcher shares with the wrapper, ends with it.
"""

from __future__ import annotations

import os
import select
import signal
import socket

from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import KernelExitedEvent, LaunchedEvent, StopCommand
from bitfusion_kernel.processes.process_watch import ProcessWatch, pid_space

REPORTED_VARIABLES = ("BITFUSION_POOL_", "BF_", "CUDA_VISIBLE_DEVICES")
"""Variables that begin so are told to the proxy: what the wrapper says about the lease."""

LONGEST_POLL_MS = 1000


def guard(kernel_pid: int, wrapper_pid: int, socket_path: str) -> int:
    """Guard a kernel to its end; returns its status. Called with SIGINT and SIGTERM blocked."""
    signals = _signals_as_bytes()
    supervisor = _connect(socket_path)
    if supervisor is not None:
        reported = {k: v for k, v in os.environ.items() if k.startswith(REPORTED_VARIABLES)}
        supervisor.send(LaunchedEvent(os.getpid(), kernel_pid, reported, pid_space()))
    _wait_for_end(kernel_pid, wrapper_pid, signals, supervisor)
    try:
        os.killpg(kernel_pid, signal.SIGKILL)  # its children; the kernel itself is not reaped yet
    except ProcessLookupError:
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(kernel_pid, 0)[1])
    if supervisor is not None:
        supervisor.send(KernelExitedEvent(status))
    return status


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


def _wait_for_end(
    kernel_pid: int, wrapper_pid: int, signals: int, supervisor: MessageConnection | None
) -> None:
    """Return when the kernel has ended, by itself or killed because something else ended."""
    poll = select.poll()
    poll.register(signals, select.POLLIN)
    wrapper = ProcessWatch(wrapper_pid)
    if wrapper.fd is not None:
        poll.register(wrapper.fd, select.POLLIN)
    stop = supervisor is None
    while True:
        if supervisor is not None and not supervisor.closed:
            supervisor.flush()  # what is reported of the environment may be larger than the socket's buffer
            poll.register(supervisor, select.POLLIN | (select.POLLOUT if supervisor.wants_write else 0))
        if stop or os.getppid() != wrapper_pid:
            os.killpg(kernel_pid, signal.SIGKILL)
            stop = True
        ended = os.waitid(os.P_PID, kernel_pid, os.WEXITED | os.WNOWAIT | (0 if stop else os.WNOHANG))
        if ended is not None:
            return
        for fd, _ in poll.poll(LONGEST_POLL_MS):
            if fd == signals:
                stop = stop or signal.SIGTERM in os.read(signals, 4096)
            elif supervisor is not None and fd == supervisor.fileno():
                commands = supervisor.receive()
                stop = stop or supervisor.closed or StopCommand() in commands
            else:
                stop = True  # the wrapper ended
