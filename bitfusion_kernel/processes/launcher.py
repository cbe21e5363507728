"""The launcher: the program under `bitfusion run`, which starts the kernel. It never outlives the wrapper.

    python -I -S launcher.py SOCKET -- KERNEL ARGV...

Standard library only, because the wrapper's environment may be anything. It starts the kernel first, which
takes longest, and leaves the rest to `kernel_guard`: this file is compiled anew by every launcher, a module
that it imports is not.

The kernel gets a process group of its own and JPY_PARENT_PID = launcher: an interrupt then reaches the
kernel and its children and nothing else, and ipykernel notices by itself when the launcher is gone.
"""

from __future__ import annotations

# The C module behind `signal`, whose import would delay the kernel by 4 ms; typeshed has no stub of it.
import _signal  # type: ignore[import-not-found]  # a built-in that typeshed leaves out
import os
import sys

LAUNCHER = os.path.abspath(__file__)
_OURS = (_signal.SIGINT, _signal.SIGTERM)


def command(python: str, socket_path: str, kernel_argv: list[str]) -> list[str]:
    """The command line that starts a launcher, for the wrapper to run; used by the proxy."""
    return [python, "-I", "-S", LAUNCHER, socket_path, "--", *kernel_argv]


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

    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(LAUNCHER))))
    from bitfusion_kernel.processes.kernel_guard import guard

    status = guard(kernel_pid, wrapper_pid, socket_path)
    return status if status >= 0 else 128 - status


def _start_kernel(argv: list[str]) -> int:
    """Start the kernel as leader of its own group; returns its pid. Raises OSError."""
    environ = dict(os.environ, JPY_PARENT_PID=str(os.getpid()))
    return os.posix_spawnp(
        argv[0], argv, environ, setpgroup=0, setsigdef=(*_OURS, _signal.SIGPIPE), setsigmask=()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
