"""Clones of this checkout, as somebody else has them: what is changed in tracked files, too, as a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IDENTITY = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.com")


def commit() -> str:
    """The state of this checkout; skips the test where this is no clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("this folder is no clone")
    return git(ROOT, "rev-parse", git(ROOT, *IDENTITY, "stash", "create") or "HEAD")


def clone(target: Path, of: str = "") -> Path:
    """Make one, of this checkout's state or of a commit."""
    of = of or commit()
    # It reads our objects, so also those of a commit that no branch has.
    git(ROOT, "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(target))
    git(target, "checkout", "--quiet", "--detach", of)
    return target


def git(folder: Path, *words: str) -> str:
    """What git says."""
    return subprocess.run(
        ["git", "-C", str(folder), *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
