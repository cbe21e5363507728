"""The launcher: the program under `bitfusion run`, which starts kernels. It never outlives the wrapper.

    python -I -S launcher.py SOCKET -- KERNEL ARGV...

Standard library only, because the wrapper's environment may be anything. It starts the kernel first, which
takes longest, and leaves the rest to `kernel_guard`: this file is compiled anew by every launcher, a module
that it imports is not.

The kernel gets a session of its own, as Jupyter gives one to a plain kernel, and JPY_PARENT_PID = launcher: a
signal to its group reaches the kernel and its children and nothing else, and ipykernel notices by itself when
the launcher is gone.
"""

from __future__ import annotations

# The C module behind `signal`, whose import would delay the kernel by 4 ms; typeshed has no stub of it.
import _signal  # type: ignore[import-not-found]  # a built-in that typeshed leaves out
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCHER = os.path.abspath(__file__)
_OURS = (_signal.SIGINT, _signal.SIGTERM)

KERNEL_SPEAKS = "bitfusion-kernel: from here on the kernel speaks"
"""The last line on stdout and on stderr before a kernel's first one, for `gpu.acquisition`.

What a kernel says in its first milliseconds, be it that it cannot start, comes before LaunchedEvent.
"""


def command(python: str, socket_path: str, kernel_argv: list[str]) -> list[str]:
    """The command line that starts a launcher, for the wrapper to run; used by the proxy."""
    return [python, "-I", "-S", LAUNCHER, socket_path, "--", *kernel_argv]


def main(argv: list[str]) -> int:
    """Run until kernel, wrapper or supervisor ends; returns the exit code (128 + signal if killed)."""
    if len(argv) < 3 or argv[1] != "--":
        raise SystemExit("usage: launcher.py SOCKET -- KERNEL ARGV...")
    socket_path, kernel_argv = argv[0], argv[2:]
    wrapper_pid = os.getppid()
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(LAUNCHER))))
    others = _children()
    # Until there are handlers: a launcher that died now would leave its kernel behind, lease and all.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, _OURS)
    try:
        kernel_pid = start_kernel(kernel_argv, os.environ)
    except OSError as error:
        text = f"Error: cannot start the kernel {kernel_argv[0]}: {error.strerror}\n"
        os.write(2, text.encode(errors="replace"))
        return 127

    from bitfusion_kernel.processes import reaper

    reaper.adopt_orphans()  # before the kernel can have any
    from bitfusion_kernel.processes.kernel_guard import guard

    status = guard(kernel_pid, wrapper_pid, socket_path, start_kernel, others)
    return status if status >= 0 else 128 - status


def _children() -> frozenset[int]:
    """A wrapper's, which has become this program; most have none.

    Asked before there is a kernel: one that dies at once leaves processes that look the same.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    from bitfusion_kernel.processes import reaper

    return reaper.children()


def start_kernel(argv: list[str], environment: Mapping[str, str]) -> int:
    """Start a kernel as leader of its own session; returns its pid. Raises OSError.

    Called here for the first one, and by `kernel_guard` for those after it.
    """
    environ = {**environment, "JPY_PARENT_PID": str(os.getpid())}
    environ.pop("BITFUSION_KERNEL_STATE", None)  # of this lease: a `bitfusion run` in a cell is another's
    for stream in (1, 2):
        try:
            os.write(stream, f"{KERNEL_SPEAKS}\n".encode())
        except OSError:  # closed by the wrapper: then nobody hears the kernel either
            pass
    default = (*_OURS, _signal.SIGPIPE)
    try:
        return os.posix_spawnp(argv[0], argv, environ, setsid=True, setsigdef=default, setsigmask=())
    except NotImplementedError:  # a Python that was built on an old Linux; of its own group, at least
        return os.posix_spawnp(argv[0], argv, environ, setpgroup=0, setsigdef=default, setsigmask=())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
