"""The supervisor for a proxy that starts: the one that its predecessor has left, or a new one."""

from __future__ import annotations

import os
import time

from bitfusion_kernel.processes import private_folder
from bitfusion_kernel.processes.messages import VERSION
from bitfusion_kernel.processes.process_watch import ProcessWatch
from bitfusion_kernel.processes.supervisor_link import SupervisorLink, join_supervisor, start_supervisor

FOLDER_LIMIT = 2.0
"""Seconds for a supervisor that is just ending to leave its folder."""

_PAUSE = 0.005


class AnotherProxy(Exception):
    """A kernel with this connection file's key runs already. The text is for stderr."""


def supervisor(key: bytes) -> tuple[SupervisorLink, str]:
    """Join or fork it, before any thread is started and zmq is imported; and what to tell, or nothing.

    Raises:
        AnotherProxy: A proxy with this key lives.
    """
    restarter = _restarter()
    deadline = time.monotonic() + FOLDER_LIMIT
    told = ""
    while True:
        try:
            folder, lock = private_folder.claim(os.environ, key)
        except OSError:
            folder, lock = "", private_folder.NO_LOCK  # the first cell tries again, and tells
        if lock is not None:
            found_again = lock != private_folder.NO_LOCK
            return start_supervisor(folder, restarter, found_again=found_again), told
        from bitfusion_kernel.processes.meeting_point import Gone, Refused, Silent

        try:
            return join_supervisor(folder, restarter), told
        except Gone:
            if time.monotonic() < deadline:
                time.sleep(_PAUSE)
                continue
        except Silent:
            told = (
                "What this kernel held before its restart is lost: the process that kept it does not answer."
            )
        except Refused as refused:
            if refused.version == VERSION:
                raise AnotherProxy(
                    "another kernel with the key of this connection file is running; shut that one down, or "
                    "start this one with a connection file of its own"
                ) from None
            told = (
                "What this kernel held before its restart is given back: another version of "
                "kubeflow-bitfusion kept it."
            )
        key = b""  # a folder that nobody knows of


def _restarter() -> int:
    """Jupyter's process, which starts a kernel anew that is gone; else whoever has started this one."""
    jupyter = os.environ.get("JPY_PARENT_PID", "")
    if jupyter.isdecimal() and len(jupyter) < 10:
        watch = ProcessWatch(int(jupyter))
        alive = watch.alive
        watch.close()
        if alive:
            return int(jupyter)
    return os.getppid()
