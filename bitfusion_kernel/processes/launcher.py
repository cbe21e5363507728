"""The launcher: the program under `bitfusion run`; it starts the kernel and never outlives the supervisor.

    python -I -S launcher.py SOCKET -- KERNEL ARGV...

Standard library only, because the wrapper's environment may be anything. It starts the kernel first
(that takes longest), then connects to the supervisor's SOCKET, says which processes there are and what the
wrapper put into the environment, and from then on watches three things by file descriptor: the kernel,
its own parent (the wrapper) and the supervisor. Whichever ends first, the kernel's whole process group is
killed and the launcher ends; so the GPU lease, which it shares with the wrapper, ends with it.

The kernel gets a process group of its own and JPY_PARENT_PID = launcher: an interrupt then reaches the
kernel and its children and nothing else, and ipykernel notices by itself when the launcher is gone.
"""

from __future__ import annotations

# The C module behind `signal`, whose import would delay the kernel by 4 ms; typeshed has no stub of it.
import _signal  # type: ignore[import-not-found]  # a built-in that typeshed leaves out
import os
import sys

REPORTED_VARIABLES = ("BITFUSION_POOL_", "BF_", "CUDA_VISIBLE_DEVICES")
_OURS = (_signal.SIGINT, _signal.SIGTERM)


def _start_kernel(argv: list[str]) -> int:
    """Start the kernel as leader of its own group; returns its pid. Raises OSError."""
    environ = dict(os.environ, JPY_PARENT_PID=str(os.getpid()))
    return os.posix_spawnp(
        argv[0], argv, environ, setpgroup=0, setsigdef=(*_OURS, _signal.SIGPIPE), setsigmask=()
    )


def main(argv: list[str]) -> int:
    """Run until kernel, wrapper or supervisor ends; returns the exit code (128 + signal if killed)."""
    if len(argv) < 3 or argv[1] != "--":
        raise SystemExit("usage: launcher.py SOCKET -- KERNEL ARGV...")
    socket_path, kernel_argv = argv[0], argv[2:]
    wrapper_pid = os.getppid()
    # Until there are handlers: a launcher that died now would leave its kernel behind, lease and all.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _OURS)
    try:
        kernel_pid = _start_kernel(kernel_argv)
    except OSError as error:
        os.write(2, f"Error: cannot start the kernel {kernel_argv[0]}: {error.strerror}\n".encode())
        return 127

    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    import select
    import signal
    import socket

    from bitfusion_kernel.processes.json_lines import JsonLines
    from bitfusion_kernel.processes.process_watch import ProcessWatch

    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):  # SIGINT is meant for the kernel's group
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OURS)
    wrapper = ProcessWatch(wrapper_pid)
    supervisor_socket = socket.socket(socket.AF_UNIX)
    supervisor: JsonLines | None = None
    try:
        supervisor_socket.connect(socket_path)
    except OSError:
        supervisor_socket.close()  # no supervisor, no kernel: end below
    else:
        supervisor = JsonLines(supervisor_socket)
        reported = {k: v for k, v in os.environ.items() if k.startswith(REPORTED_VARIABLES)}
        supervisor.send(
            {"event": "launched", "launcher": os.getpid(), "kernel": kernel_pid, "environment": reported}
        )

    poll = select.poll()
    poll.register(woken, select.POLLIN)
    if wrapper.fd is not None:
        poll.register(wrapper.fd, select.POLLIN)
    if supervisor is not None:
        poll.register(supervisor, select.POLLIN)
    stop = supervisor is None
    while True:
        if stop or os.getppid() != wrapper_pid:
            os.killpg(kernel_pid, signal.SIGKILL)
        ended = os.waitid(os.P_PID, kernel_pid, os.WEXITED | os.WNOWAIT | (0 if stop else os.WNOHANG))
        if ended is not None:
            break
        for fd, _ in poll.poll(1000):
            if fd == woken:
                stop = stop or signal.SIGTERM in os.read(woken, 4096)
            elif supervisor is not None and fd == supervisor.fileno():
                messages = supervisor.receive()
                stop = stop or supervisor.closed or any(message["do"] == "stop" for message in messages)
            else:
                stop = True  # the wrapper ended
    try:
        os.killpg(kernel_pid, signal.SIGKILL)  # its children; the kernel itself is not reaped yet
    except ProcessLookupError:
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(kernel_pid, 0)[1])
    if supervisor is not None:
        supervisor.send({"event": "kernel_exited", "status": status})
        supervisor.flush()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
