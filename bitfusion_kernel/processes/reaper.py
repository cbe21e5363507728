"""Adopts and reaps processes whose parent has died: where Jupyter is process 1, nobody else would.

Process 1 inherits orphans. An init reaps them; a Jupyter that is process 1 of its container reaps its own
children only, and all others stay zombies as long as the container. So the supervisor adopts what becomes an
orphan under it: the launcher of a killed wrapper, a subprocess of a cell. What is left of a killed supervisor
the proxy adopts.

One of them must be ended, too. The launcher starts the kernel first, in a process group of its own, and tells
of it afterwards. A wrapper that is cancelled and killed in the moment of its grant takes the launcher along,
as both are of one group; the kernel would stay, with the lease, and nobody knows its number. Its launcher's
death makes it a child of whoever adopts orphans: there `end_strays` finds it.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes.process_watch import ProcessWatch, pids, stat

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

ORPHANS_PATIENCE = 0.3
"""Seconds that what was killed with a wrapper has to end, to be reaped."""

STRAYS_PATIENCE = 1.0
"""Seconds that killed strays have to end."""

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.005


def adopt_orphans() -> None:
    """Become the parent of every orphan among this process's descendants. Without effect before Linux 3.4."""
    try:
        import ctypes  # 2 ms

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, or statically linked
        return


def reap_ended(but: Collection[int] = ()) -> None:
    """Reap every child that has ended, except those whose status somebody else wants and asks for soon."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in but:
            return
        os.waitpid(ended.si_pid, 0)


def reap(children: Iterable[int], seconds: float) -> None:
    """Reap children that are about to end; pids, or negative numbers of process groups.

    Args:
        children: Those that are no children, or no longer, are passed over.
        seconds: How long to wait for all of them.
    """
    deadline = time.monotonic() + seconds
    for child in children:
        try:
            while time.monotonic() < deadline:
                if os.waitpid(child, os.WNOHANG) == (0, 0):
                    time.sleep(_PAUSE)
        except ChildProcessError:
            continue


def children() -> frozenset[int]:
    """This process's children, zombies among them; none where there is no /proc."""
    own = str(os.getpid())
    return frozenset(pid for pid in pids() if (found := stat(pid)) is not None and found[2] == own)


def end_strays(but: Iterable[int]) -> None:
    """Kill and reap all children but those named, with the groups they lead, and then what was theirs.

    Called when a kernel or wrapper has ended, by a process that has adopted orphans since before. Programs
    with GPUs of their own (`bitfusion run`, in a session of its own) are nobody's strays.
    """
    deadline = time.monotonic() + STRAYS_PATIENCE
    known = frozenset(but)
    while (found := children() - known) and time.monotonic() < deadline:
        known |= {pid for pid in found if _has_its_own_gpus(pid)}
        for pid in found - known:
            _kill(pid)
        reap(found - known, deadline - time.monotonic())


def end_orphan(
    wrapper_pid: int,
    kernel_pid: int | None,
    launcher_pid: int | None,
    *,
    granted: bool,
    patience: float = 0.4,
) -> None:
    """End a wrapper whose supervisor was killed; called by the proxy, which is about to end itself.

    The launcher notices that the supervisor is gone and kills the kernel; the wrapper then releases its GPUs
    and ends. A wrapper that still waits in the queue, or has lost its launcher too, gets SIGTERM, then
    SIGKILL. The proxy has adopted them all, and reaps them here.

    Args:
        wrapper_pid: The wrapper; it leads a process group.
        kernel_pid: The kernel, which leads another one; None if it was not started, or is elsewhere.
        launcher_pid: The launcher, likewise.
        granted: Whether the wrapper has GPUs to release.
        patience: Seconds before each signal.
    """
    others = children() - {wrapper_pid}
    wrapper = ProcessWatch(wrapper_pid)
    kernel = ProcessWatch(kernel_pid) if kernel_pid is not None else None
    if not granted:
        wrapper.kill_group(signal.SIGTERM)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if wrapper.wait(patience):
            break
        wrapper.kill_group(number)
    if kernel is not None:
        kernel.kill_group(signal.SIGKILL)
        kernel.close()
    wrapper.close()
    family = [wrapper_pid, launcher_pid, None if kernel_pid is None else -kernel_pid]
    reap([child for child in family if child is not None], ORPHANS_PATIENCE)
    if kernel is None:
        end_strays(others)


def _has_its_own_gpus(pid: int) -> bool:
    """Whether it is a `bitfusion run`, under whatever interpreter."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        return False
    return any(os.path.basename(word) == b"bitfusion" and after == b"run" for word, after in pairwise(words))


def _kill(child: int) -> None:
    # ours and not reaped: the number is nobody else's
    try:
        if os.getpgid(child) == child:
            os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
