"""Adopts and reaps processes whose parent has died: where Jupyter is process 1, nobody else would.

Process 1 inherits orphans. An init reaps them; a Jupyter that is process 1 of its container reaps its own
children only, and all others stay zombies as long as the container. So the supervisor adopts what becomes an
orphan under it: the launcher of a killed wrapper, a subprocess of a cell. What is left of a killed supervisor
the proxy adopts.
"""

from __future__ import annotations

import os
import time

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ORPHANS_PATIENCE = 0.3
"""Seconds that what was killed with a wrapper has to end, to be reaped."""

_PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.005


def adopt_orphans() -> None:
    """Become the parent of every orphan among this process's descendants. Without effect before Linux 3.4."""
    try:
        import ctypes  # 2 ms

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):  # a Python without ctypes, or statically linked
        return


def reap_ended(but: int | None = None) -> None:
    """Reap every child that has ended, except `but`, whose status somebody else wants."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid == but:
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
