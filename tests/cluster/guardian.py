"""Ends the processes of a cluster when their owner is gone, however it went; then removes its folder.

Run as ``python guardian.py FOLDER`` with a pipe as stdin. Lines ``+PID START`` and ``-PID`` tell which
processes belong to the owner, ``^PATH`` a folder of cgroups to remove; the end of the pipe is the owner's
end. Only processes with the noted start time are ended, so a process id that was given to somebody else
meanwhile is safe. Standard library only.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

_EMPTY_LIMIT_S = 20.0


def start_time(pid: int) -> str | None:
    """When a living process started, in the kernel's clock ticks since boot; None once it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def end_all(processes: dict[int, str]) -> None:
    """SIGKILL to those that are still who they were, and to the groups they lead."""
    for pid, start in processes.items():
        if start_time(pid) == start:
            try:
                if os.getpgid(pid) == pid:
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def remove_cgroup(folder: str) -> bool:
    """Remove a cgroup and those in it, deepest first; False while a process is in one."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except OSError:
            return False
    return not os.path.isdir(folder)


def remove_cgroups(folders: list[str]) -> None:
    """The same for several, whose last processes may still be about to end."""
    end = time.monotonic() + _EMPTY_LIMIT_S
    while folders and time.monotonic() < end:
        folders = [folder for folder in folders if not remove_cgroup(folder)]
        time.sleep(0.05)


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    processes: dict[int, str] = {}
    cgroups: list[str] = []
    for line in sys.stdin:
        words = line[1:].split()
        if line.startswith("+"):
            processes[int(words[0])] = words[1]
        elif line.startswith("-"):
            processes.pop(int(words[0]), None)
        elif line.startswith("^"):
            cgroups.append(words[0])
    end_all(processes)
    remove_cgroups(cgroups)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
