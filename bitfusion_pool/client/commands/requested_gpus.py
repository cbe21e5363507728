"""Which allocation files of `request_gpus` this user has: the newest is meant where no `-f FILE` is given.

The list is `~/.bitfusion/requested_gpus`, one path a line, the newest last. Where others may write in the
home, as in the volume of a pod, it lies beside the allocation files, in a folder of the user.
"""

from __future__ import annotations

import os

from bitfusion_client.errors import UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.allocation_file import allocation_folder
from bitfusion_pool.own_files import open_own, trusted_path, write_own

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST = 1_000  # so many allocation files are remembered
_MAX_CHARACTERS = 4096 * _MOST


def remember(path: str, environ: Mapping[str, str]) -> None:
    """Put the file at the end of the list, as the newest."""
    path = os.path.abspath(path)
    _write([*(known for known in _read(environ) if known != path), path], environ)


def forget(path: str, environ: Mapping[str, str]) -> None:
    """Take the file off the list."""
    path = os.path.abspath(path)
    _write([known for known in _read(environ) if known != path], environ)


def newest(environ: Mapping[str, str]) -> str:
    """The path of the newest allocation file that still exists.

    Raises:
        UsageError: There is none.
    """
    known = _read(environ)
    if not known:
        raise UsageError("no GPUs are requested: use request_gpus first, or name the allocation with -f FILE")
    return known[-1]


def _list_paths(environ: Mapping[str, str]) -> tuple[str, str]:
    """Where the list may be; the first that is this user's alone is meant."""
    beside = os.path.abspath(allocation_folder())
    home = environ.get("HOME") or "/root"
    return f"{home}/.bitfusion/requested_gpus", f"{beside}/bitfusion-user-{os.geteuid()}/requested_gpus"


def _read(environ: Mapping[str, str]) -> list[str]:
    for path in _list_paths(environ):
        try:
            with open(open_own(trusted_path(path), os.O_RDONLY), encoding="utf-8") as file:
                known = [line for line in file.read(_MAX_CHARACTERS).splitlines() if os.path.exists(line)]
        except (OSError, UnicodeError):
            continue
        if known:
            return known
    return []


def _write(paths: Sequence[str], environ: Mapping[str, str]) -> None:
    for path in _list_paths(environ):
        try:
            path = trusted_path(path)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write_own(path, "".join(f"{known}\n" for known in paths[-_MOST:]))
            return
        except OSError:
            pass  # it cannot be written, or is another user's; without any place -f FILE is needed
