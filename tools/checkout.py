"""What this folder is a copy of: version, commit, its date, where the source is. For labels and archives.

Without git, as in an unpacked source archive, there is no commit; the date is that of pyproject.toml, which
such an archive has from the commit. $SOURCE_DATE_EPOCH comes before both.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class WrongCheckout(Exception):
    """What is wrong with this folder or a variable, in words for the person at the terminal."""


@dataclass(frozen=True)
class Checkout:
    """A state of the project.

    Attributes:
        version: As in pyproject.toml.
        epoch: Seconds since 1970: when the commit was made.
        revision: The commit, with `-dirty` where files were changed since; empty without git.
        source: Its address for people, without credentials; empty where it is only known on this machine.
    """

    version: str
    epoch: int
    revision: str = ""
    source: str = ""

    @property
    def created(self) -> str:
        """The date as labels of images have it (RFC 3339)."""
        return datetime.fromtimestamp(self.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def read(root: Path = ROOT) -> Checkout:
    """The state of this folder."""
    version = version_in((root / "pyproject.toml").read_text())
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    if told and not re.fullmatch("[0-9]{1,11}", told):
        raise WrongCheckout(
            f"SOURCE_DATE_EPOCH={told!r} must be a number of seconds since 1970, or be unset."
        )
    top = git(root, "rev-parse", "--show-toplevel")
    commit = git(root, "log", "-1", "--format=%H %ct")
    if not top or not commit or not os.path.samefile(top, root):
        date = told or str(int((root / "pyproject.toml").stat().st_mtime))
        return Checkout(version, int(date))
    revision, date = commit.split()
    changed = git(root, "status", "--porcelain", "--untracked-files=no")
    return Checkout(
        version,
        int(told or date),
        f"{revision}-dirty" if changed else revision,
        address(git(root, "config", "--get", "remote.origin.url")),
    )


def git(root: Path, *words: str) -> str:
    """What git says, nothing where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version_in(pyproject: str) -> str:
    """The project's version; tomllib is missing in Python 3.10."""
    found = re.search(r'(?m)^version = "([^"]+)"$', pyproject)
    if found is None:
        raise WrongCheckout("pyproject.toml has no line `version = …`")
    return found[1]


_REMOTE = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/]+@)?(?P<host>[\w.-]+\.\w+)(?::\d+)?[:/]/?(?P<path>.+?)(?:\.git)?/?"
)


def address(remote: str) -> str:
    """An https address of what git calls a remote; empty for a folder."""
    found = _REMOTE.fullmatch(remote)
    return f"https://{found['host']}/{found['path']}" if found else ""
