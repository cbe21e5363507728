"""What containerd has made of images, kept between runs: a notebook's two gigabytes take a minute to unpack.

The kept folder is containerd's own root without any container in it. A run gets a copy whose files are hard
links, except for the databases: containerd never changes a file of an image's layer or content, it only
removes it. Where the cache lies on another file system than the run's folder nothing is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
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


def take(root: Path) -> bool:
    """Fill containerd's root, which must not be there yet; false where nothing was kept."""
    kept = _place()
    if not kept.is_dir() or not _copy(kept, root):
        shutil.rmtree(root, ignore_errors=True)
        return False
    return True


def keep(root: Path) -> bool:
    """Keep this root in place of the one before; containerd must not run, nor have any container."""
    kept = _place()
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (kept.with_name(f"{kept.name}.{word}-{os.getpid()}") for word in ("fresh", "old"))
    try:
        if not _copy(root, fresh):
            return False
        if kept.exists():
            kept.rename(old)
        fresh.rename(kept)
        return True
    except OSError:  # another run was faster
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
