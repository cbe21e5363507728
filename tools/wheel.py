"""Builds the wheel and the source archive, with the builder of requirements/build.txt, by its hashes.

For the images (`tools/images`) and a release (`tools/dist.py`). Only the standard library is needed: the
builder gets an environment of its own, build/venv-wheel. The same files give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.checkout import ROOT

REQUIREMENTS = ROOT / "requirements" / "build.txt"


class WheelFailed(Exception):
    """Why there is no wheel, in words for the person who asked for it."""


def build(targets: Sequence[str], source: Path, folder: Path, epoch: int) -> list[Path]:
    """Make `wheel` and `sdist` of a folder with pyproject.toml, dated `epoch`; return their files."""
    python = _environment(ROOT / "build" / "venv-wheel")
    words = [word for target in targets for word in ("--target", target)]
    variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    before = set(folder.glob("*"))
    _run(
        [str(python), "-m", "hatchling", "build", *words, "--directory", str(folder.resolve())],
        "hatchling cannot build the project",
        source,
        variables,
    )
    return sorted(set(folder.glob("*")) - before)


def _environment(folder: Path) -> Path:
    """The interpreter of an environment with the builder, made when it isn't there yet."""
    content = REQUIREMENTS.read_bytes() + os.path.realpath(sys.executable).encode()
    stamp, python = folder / ".installed", folder / "bin" / "python"
    identity = hashlib.sha256(content).hexdigest()
    if stamp.is_file() and stamp.read_text() == identity and python.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run(
        [sys.executable, "-m", "venv", str(folder)],
        f"{sys.executable} cannot create a virtual environment "
        "(Debian and Ubuntu: apt-get install python3-venv)",
    )
    options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:"]
    _run(
        [str(python), "-m", "pip", "install", *options, "-r", str(REQUIREMENTS)],
        "pip cannot install hatchling, which builds the wheel",
    )
    stamp.write_text(identity)
    return python


def _run(argv: list[str], failure: str, folder: Path = ROOT, variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        argv,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        raise WheelFailed("\n".join([f"{failure}:", *done.stdout.splitlines()[-15:]]))
