"""Runs a command in a box: ``python box_enter.py PID COMMAND…``, PID being the box's first process.

Ends with the command's status, passes signals on, and takes the command along when it is killed itself.
Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def enter(namespaces: list[int]) -> None:
    """Join the namespaces of these descriptors."""
    for namespace in namespaces:
        if _libc.setns(namespace, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        os.close(namespace)


def open_namespaces(pid: int, *names: str) -> list[int]:
    return [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names]


def main() -> None:
    pid, command = int(sys.argv[1]), sys.argv[2:]
    folder = os.getcwd()
    enter(open_namespaces(pid, "net", "pid", "mnt"))
    os.chdir(folder)
    parent_lives, ours = os.pipe()
    child = os.fork()  # only a child is in the pid namespace
    if child == 0:
        os.close(ours)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if select.select([parent_lives], [], [], 0)[0]:
            os._exit(1)  # it died before the line above
        os.execvp(command[0], command)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    status = os.waitpid(child, 0)[1]
    ended = os.waitstatus_to_exitcode(status)
    sys.exit(ended if ended >= 0 else 128 - ended)


if __name__ == "__main__":
    main()
