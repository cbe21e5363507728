"""Whether Linux has killed processes for want of memory, where a control group counts that."""

from __future__ import annotations

import os

CGROUPS = "/sys/fs/cgroup"


class OomKills:
    """Counts from its making on, in the control group that a process is in then.

    Made when a program runs, and asked when it was killed by SIGKILL, which is all that its exit status
    tells. Containers and batch systems limit memory by control groups.
    """

    def __init__(self, pid: int, proc: str = "/proc", cgroups: str = CGROUPS) -> None:
        self._file = _file_that_counts(os.path.join(proc, str(pid), "cgroup"), cgroups)
        self._before = self._count()

    def happened(self) -> bool | None:
        """Whether there have been any since; None if nobody counts."""
        return None if self.number < 0 else self.number > 0

    @property
    def number(self) -> int:
        """How many there have been since; -1 if nobody counts."""
        count = self._count()
        return -1 if count is None or self._before is None else count - self._before

    def _count(self) -> int | None:
        if self._file is None:
            return None
        for line in _lines(self._file):
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
        return None


def _file_that_counts(membership: str, cgroups: str) -> str | None:
    """`memory.oom_control` (version 1) or `memory.events`; a container sees its own group as the root."""
    candidates: list[str] = []
    for line in _lines(membership):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if "memory" in controllers.split(","):
            candidates[:0] = _places(os.path.join(cgroups, "memory"), path, "memory.oom_control")
        elif not controllers:
            candidates += _places(cgroups, path, "memory.events")
    return next(filter(os.path.isfile, candidates), None)


def _places(mount: str, path: str, name: str) -> list[str]:
    own = [] if ".." in path else [os.path.join(mount, path.lstrip("/"), name)]
    return [*own, os.path.join(mount, name)]


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            return file.read(65536).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
