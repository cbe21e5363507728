"""What containerd has made of images, kept between runs: a notebook's two gigabytes take a minute to unpack.

The kept folder is containerd's own root without any container in it. A run gets a copy whose files are hard
links, except for the databases: containerd never changes a file of an image's layer or content, it only
removes it. Where the cache lies on another file system than the run's folder nothing is kept.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.made_once import user_cache

_GENERATION = 1
_PARTS = (
    "io.containerd.content.v1.content",
    "io.containerd.metadata.v1.bolt",
    "io.containerd.snapshotter.v1.overlayfs",
)
"""Of containerd's root: where images and their unpacked layers are."""


def _place() -> Path:
    return user_cache() / "node" / f"images-{_GENERATION}"


@contextmanager
def _turn(kind: int) -> Iterator[None]:
    """Whoever copies the kept folder copies all of one, not a part of the one that follows it."""
    lock = _place().with_name("images.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, kind)
        yield


def take(root: Path) -> bool:
    """Fill containerd's root, which must not be there yet; false where nothing was kept."""
    kept = _place()
    with _turn(fcntl.LOCK_SH):
        if kept.is_dir() and _copy(kept, root):
            return True
    shutil.rmtree(root, ignore_errors=True)
    return False


def keep(root: Path) -> bool:
    """Keep this root in place of the one before; containerd must not run, nor have any container."""
    kept = _place()
    fresh, old = (kept.with_name(f"{kept.name}.{word}-{os.getpid()}") for word in ("fresh", "old"))
    try:
        if not _copy(root, fresh):
            return False
        with _turn(fcntl.LOCK_EX):
            if kept.exists():
                kept.rename(old)
            fresh.rename(kept)
        return True
    except OSError:  # no room, or no right: the next run unpacks them itself
        return False
    finally:
        for folder in (fresh, old):
            shutil.rmtree(folder, ignore_errors=True)


def _copy(source: Path, target: Path) -> bool:
    """`cp` keeps what Python's copies lose: the attributes by which a layer hides a folder of another."""
    target.mkdir(mode=0o711)
    parts = [str(source / part) for part in _PARTS]
    done = subprocess.run(
        ["cp", "--archive", "--link", *parts, str(target)], stdin=subprocess.DEVNULL, capture_output=True
    )
    if done.returncode != 0:
        return False
    for database in target.glob("*/*.db"):
        fresh = database.with_suffix(".copy")
        shutil.copy2(database, fresh)
        fresh.replace(database)
    return True
