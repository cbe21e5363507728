"""Whose end is the end of Jupyter, where Jupyter is not simply the parent of the proxy.

`JPY_PARENT_PID` names Jupyter's process as Jupyter sees it. Between that and the proxy may stand a shell, or
a pid namespace (bubblewrap, apptainer, docker, `unshare --pid`) in which the number is nobody's or somebody
else's. Or Jupyter has died already, and another process has adopted the proxy.
"""

from __future__ import annotations

from bitfusion_kernel.processes.process_watch import ProcessWatch, stat

_MOST_ANCESTORS = 100


class PidSpace:
    """What can be seen of processes from here."""

    def is_alive(self, pid: int) -> bool:
        """Whether this number is a process's."""
        try:
            watch = ProcessWatch(pid)
        except OverflowError:
            return False  # larger than any
        alive = watch.alive
        watch.close()
        return alive

    def ancestors(self, pid: int) -> list[int]:
        """The parent of a process, its parent, and so on, as far as they are seen."""
        found: list[int] = []
        while len(found) < _MOST_ANCESTORS and (fields := stat(pid)) is not None and (pid := int(fields[2])):
            found.append(pid)
        return found

    def newest(self) -> int:
        """The number that was given last; 0 if nobody tells."""
        try:
            with open("/proc/loadavg", encoding="ascii") as file:
                return int(file.read().split()[4])
        except (OSError, ValueError, IndexError):
            return 0

    def was_started_by(self, pid: int, jupyter: int) -> bool:
        """Whether a process has the variable, as what stands between Jupyter and the proxy inherits it."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return b"JPY_PARENT_PID=%d" % jupyter in file.read().split(b"\0")
        except OSError:
            return False


def starters(jupyter: int, parent: int, here: PidSpace) -> list[int] | None:
    """The processes whose end is Jupyter's; None if Jupyter is gone.

    Args:
        jupyter: What `JPY_PARENT_PID` says, another number than `parent`.
        parent: Of the proxy; 0 if it cannot be seen from this pid namespace.
        here: Tells of the processes.
    """
    if not parent:
        return []  # the namespace is the proxy's own, and ends with whoever made it
    if here.is_alive(jupyter):
        return [parent, jupyter] if jupyter in here.ancestors(parent) else [parent]
    never_was_here = jupyter > here.newest()
    return [parent] if never_was_here or here.was_started_by(parent, jupyter) else None
