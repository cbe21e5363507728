"""Watching and signalling processes without pid races: by pidfds, or by start times where there are none.

A pidfd (Linux >= 5.3) becomes readable when its process ends and can't be confused with a later process of
the same number. A Python that was built on older headers has no `os.pidfd_open` wherever it runs. Used by
proxy, supervisor and launcher; standard library only.
"""

from __future__ import annotations

import os
import select
import time

POLL_WITHOUT_PIDFD = 0.02
"""Seconds between looks at a process where there are no pidfds."""


class ProcessWatch:
    """One foreign process. `fd` can be polled for its end; without pidfds `fd` is None and callers poll."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd: int | None = None
        self._start = ""
        self._gone = False
        try:
            self.fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._gone = True
        except (AttributeError, OSError):  # an old Python build, an old kernel, or a sandbox
            start = _start_time(pid)
            self._gone = start is None
            self._start = start or ""

    @property
    def alive(self) -> bool:
        """Whether the process still runs (a zombie does not)."""
        if self._gone:
            return False
        if self.fd is not None:
            self._gone = bool(select.select([self.fd], [], [], 0)[0])
        else:
            self._gone = _start_time(self.pid) != self._start
        return not self._gone

    def wait(self, seconds: float) -> bool:
        """Wait until the process ends, at most so long; whether it has ended."""
        deadline = time.monotonic() + seconds
        while self.alive and (left := deadline - time.monotonic()) > 0:
            if self.fd is not None:
                select.select([self.fd], [], [], left)
            else:
                time.sleep(min(left, POLL_WITHOUT_PIDFD))
        return not self.alive

    def kill_group(self, number: int) -> None:
        """Signal the process group that this process leads, if the process is still there."""
        if not self.alive:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def close(self) -> None:
        """Give the pidfd back."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def pid_space() -> str:
    """Where this process's pids are numbered: this boot of this machine, and the pid namespace.

    A pid that was told with another text, or with none, is another process's number here: it must not be
    watched or signalled. Empty where /proc doesn't tell: then nobody can know.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def pidfds_work() -> bool:
    """Whether this Python on this machine has pidfds."""
    watch = ProcessWatch(os.getpid())
    works = watch.fd is not None
    watch.close()
    return works


def pids() -> list[int]:
    """The processes that are here, zombies among them; none where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def stat(pid: int) -> list[str] | None:
    """What /proc tells of a process: its name, state (`Z`: a zombie), parent and more; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            name, _, rest = file.read().rpartition(")")
    except OSError:
        return None
    return [name.partition("(")[2], *rest.split()] if rest else None


def started_at() -> float:
    """When this process started, in seconds of `time.time()`, up to 10 ms late; 0 without /proc."""
    ticks = _start_time(os.getpid())
    if not ticks:
        return 0.0
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + (int(ticks) + 1) / os.sysconf("SC_CLK_TCK")


def _start_time(pid: int) -> str | None:
    """When a process began, in ticks since boot; None if there is none or only a zombie.

    With the pid it names a process for as long as the machine runs, but for a pid that is used again within
    one tick (10 ms). Empty where /proc can't be read: then the pid alone has to do.
    """
    fields = stat(pid)
    if fields is None:
        return "" if _exists(pid) and not os.path.exists("/proc/self/stat") else None
    return None if fields[1] in ("Z", "X") else fields[20]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
