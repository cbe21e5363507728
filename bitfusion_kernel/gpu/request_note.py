"""What `%bitfusion request` has asked for, kept where the next proxy of the same kernel finds it.

A restart replaces the proxy, and the folder of its sockets goes with it; what stays is the key in the
connection file. So the request lies in the user's state folder, under a name made from that key. The proxy
writes it, its successor reads it; it is removed when the kernel is shut down for good.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import stat
from collections.abc import Mapping

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.gpu_request import GpuRequest

FOLDER = os.path.join("bitfusion-kernel", "requests")
"""Below `$XDG_STATE_HOME`."""

LONGEST = 16384
"""Bytes of one note."""

MOST_NOTES = 256
"""Kernels that died without a successor leave theirs behind; the oldest go when there are more."""

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class RequestNote:
    """The note of one kernel; it need not exist. It holds nothing secret.

    Args:
        key: Of the connection file. Without one no note is kept: others could have the same name.
        environ: Names the state folder.
    """

    def __init__(self, key: bytes, environ: Mapping[str, str]) -> None:
        state = environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(state):
            state = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "state")
        self._folder = os.path.join(state, FOLDER)
        self._path = ""
        if key:
            name = hmac.new(key, b"bitfusion-kernel request", "sha256").hexdigest()[:32]
            self._path = os.path.join(self._folder, f"{name}.json")

    def read(self) -> GpuRequest | None:
        """The request, or None if there is no note, or it is not one that this user has written."""
        try:
            if not self._path or not _is_own(os.lstat(self._folder), stat.S_IFDIR):
                return None
            fd = os.open(self._path, os.O_RDONLY | _OPEN)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            if not _is_own(found, stat.S_IFREG) or found.st_size > LONGEST:
                return None
            return GpuRequest.from_json(json.loads(os.read(fd, LONGEST)))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError, InvalidRequest):
            return None
        finally:
            os.close(fd)

    def write(self, request: GpuRequest) -> None:
        """Replace the note. Raises OSError, in words for a person."""
        text = json.dumps(request.to_json()).encode()
        if not self._path:
            raise OSError(errno.EINVAL, "Jupyter gave this kernel no key to know it by")
        if len(text) > LONGEST:
            raise OSError(errno.EFBIG, f"the request is longer than {LONGEST} bytes")
        _make_folder(self._folder)
        draft = os.path.join(self._folder, f"{os.urandom(8).hex()}.draft")
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600)
        try:
            with open(fd, "wb") as file:
                file.write(text)
            os.replace(draft, self._path)
        except OSError:
            os.unlink(draft)
            raise
        self._remove_the_oldest()

    def remove(self) -> None:
        """Forget the request."""
        if self._path:
            try:
                os.unlink(self._path)
            except OSError:
                pass

    def _remove_the_oldest(self) -> None:
        with os.scandir(self._folder) as entries:
            notes = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in entries]
        for _, path in sorted(notes)[:-MOST_NOTES]:
            try:
                os.unlink(path)
            except OSError:
                pass


def _is_own(found: os.stat_result, kind: int) -> bool:
    mine = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return mine and stat.S_IFMT(found.st_mode) == kind


def _make_folder(path: str) -> None:
    """Make the folder, this user's alone. Raises OSError if it cannot be."""
    if os.geteuid() == 0:
        _refuse_foreign_parents(path)
    os.makedirs(path, 0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "the folder belongs to another user", path)
    os.chmod(path, 0o700)  # Kubernetes opens what a volume holds to the volume's group


def _refuse_foreign_parents(path: str) -> None:
    """Root, in the home of somebody else, must not follow where that user's links lead."""
    part = ""
    for name in path.strip(os.sep).split(os.sep):
        part += os.sep + name
        try:
            owner = os.lstat(part).st_uid
        except FileNotFoundError:
            return
        if owner != 0:
            raise OSError(errno.EPERM, "the folder belongs to another user", part)
