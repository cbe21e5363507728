"""The suites: which versions, and their tests, which stand in the sdists and not in the wheels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packaging.markers import Marker

from tests.support.place import CLUSTER_CACHE

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class CannotFetch(Exception):
    """A sdist cannot be had; the text says why."""


def locked_versions() -> dict[str, str]:
    """The version of each package in requirements/lock.txt that this Python gets, by its name with `-`."""
    lock = (ROOT / "requirements" / "lock.txt").read_text()
    found = re.findall(r"(?m)^([\w.-]+)==([^ ;]+)(?: ; (.*?))? \\$", lock)
    return {name: version for name, version, marker in found if not marker or Marker(marker).evaluate()}


def fetch(name: str, version: str, python: Path, folder: Path) -> Path:
    """The unpacked sdist, in `folder`; downloaded by pip, once, into the user's cache. Raises CannotFetch."""
    archive = next(_archives(name, version), None)
    if archive is None:
        command = [
            *(str(python), "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--no-binary", name, "--dest", str(_cache()), f"{name}=={version}"),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        archive = next(_archives(name, version), None)
        if done.returncode != 0 or archive is None:
            raise CannotFetch(f"pip cannot download the sdist of {name} {version}:\n{done.stdout}")
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (folder / archive.name.removesuffix(".tar.gz")).rename(target)
    return target


def _archives(name: str, version: str) -> Iterator[Path]:
    return _cache().glob(f"{name.replace('-', '[-_]')}-{version}.tar.gz")


def _cache() -> Path:
    folder = CACHE / CLUSTER_CACHE / "sdists"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
