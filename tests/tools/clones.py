"""Clones of this checkout, as somebody else has them: what is changed in tracked files, too, as a commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IDENTITY = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")


def commit() -> str:
    """The state of this checkout; skips the test where this is no clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("this folder is no clone")
    index = ROOT / git(ROOT, "rev-parse", "--git-path", "index")
    with tempfile.TemporaryDirectory() as folder:
        # git locks the index for it, and fails where another test process, or an editor, has done so
        own = shutil.copy(index, folder)
        return git(ROOT, "rev-parse", git(ROOT, *IDENTITY, "stash", "create", GIT_INDEX_FILE=own) or "HEAD")


def clone(target: Path, of: str = "") -> Path:
    """Make one, of this checkout's state or of a commit."""
    of = of or commit()
    # It reads our objects, so also those of a commit that no branch has.
    git(ROOT, "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(target))
    git(target, "checkout", "--quiet", "--detach", of)
    return target


def git(folder: Path, *words: str, **variables: str) -> str:
    """What git says."""
    command = ["git", "-C", str(folder), *words]
    environ = os.environ | variables
    return subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
