"""Watching and signalling processes without pid races: pidfds, with polling where there are none.

A pidfd (Linux >= 5.3) becomes readable when its process ends and can't be confused with a later
process of the same number. Used by proxy, supervisor and launcher; standard library only.
"""

from __future__ import annotations

import os
import select


class ProcessWatch:
    """One foreign process. `fd` can be polled for its end; without pidfds `fd` is None and callers poll."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.fd: int | None = None
        try:
            self.fd = os.pidfd_open(pid)
            self._gone = False
        except ProcessLookupError:
            self._gone = True
        except OSError:  # old kernel, or a sandbox without pidfds
            self._gone = False

    @property
    def alive(self) -> bool:
        """Whether the process still runs (a zombie does not)."""
        if self._gone:
            return False
        if self.fd is not None:
            self._gone = bool(select.select([self.fd], [], [], 0)[0])
        else:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                self._gone = True
            except PermissionError:
                pass
        return not self._gone

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
