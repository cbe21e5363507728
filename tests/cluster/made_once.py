"""Folders in the user's cache that take long to make: made once, whole or not at all, and kept.

A folder with its final name is complete, because it gets that name in one rename. Two who want the same one
at once wait for each other.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TORN = "building-"
"""How the name of a folder begins that is not complete."""


def user_cache() -> Path:
    """This project's folder among the user's caches."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "kubeflow-bitfusion"


def made_once(folder: Path, make: Callable[[Path], None], waiting: Callable[[], None] = lambda: None) -> Path:
    """`folder`, complete; made by `make(fresh folder)` when it isn't there yet.

    `waiting` is called when another process holds the lock of the folders beside it. What `make` raises
    passes, and nothing is left.
    """
    if folder.is_dir():
        return folder
    with only_maker(folder.parent, waiting):
        if not folder.is_dir():  # made meanwhile by the one we waited for
            fresh = Path(tempfile.mkdtemp(prefix=TORN, dir=folder.parent))
            try:
                make(fresh)
                fresh.chmod(0o755)
                fresh.rename(folder)
            except BaseException:
                shutil.rmtree(fresh, ignore_errors=True)
                raise
    return folder


@contextmanager
def only_maker(cache: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a folder of caches, having removed what a killed maker left in it."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
        for torn in cache.glob(f"{TORN}*"):
            shutil.rmtree(torn, ignore_errors=True)
        yield
