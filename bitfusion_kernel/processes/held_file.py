"""A file whose lock says that its maker lives, made and locked for as long as a wrapper runs.

Used by the supervisor, for the account of a pod (`bitfusion_kernel.pod.account`): it lives as long as the
wrapper, and longer than the proxy. Whoever looks at the file tries its lock; SIGKILL of the supervisor
releases it at once.
"""

from __future__ import annotations

import errno
import os

_TRIES = 10


class HeldFile:
    """One such file, in a folder that is made if somebody has just removed it. Raises OSError."""

    def __init__(self, path: str) -> None:
        import fcntl  # only kernels in pods need it

        self._path = path
        for _ in range(_TRIES):
            try:
                self._fd = self._make()
            except FileNotFoundError:
                continue  # the last kernel before this one has just removed the folder
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            if os.fstat(self._fd).st_nlink:
                return
            os.close(self._fd)  # taken for a dead one's before it was locked
        raise FileNotFoundError(errno.ENOENT, "others remove it each time", path)

    def _make(self) -> int:
        try:
            os.mkdir(os.path.dirname(self._path), 0o700)
        except FileExistsError:
            pass
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def release(self) -> None:
        """Remove the file, and its folder if it was the last in it."""
        for remove, path in ((os.unlink, self._path), (os.rmdir, os.path.dirname(self._path))):
            try:
                remove(path)
            except OSError:
                pass
        os.close(self._fd)
