"""A zsh for the tests that follow documents in it: the machine's, or that of its Debian, unpacked."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.cluster.debian_packages import PackagesUnavailable, unpacked

WITHOUT_ITS_FILES = "-f"
"""Nothing that a user or a distribution has set up is read."""


def zsh() -> tuple[str, ...]:
    """The command that starts it; skips the test where there is none."""
    program = shutil.which("zsh")
    if program is None:
        try:
            program = str(unpacked(["zsh"]) / "bin" / "zsh")
        except PackagesUnavailable as unavailable:
            pytest.skip(f"zsh is missing, and there are {unavailable}")
    tried = subprocess.run([program, WITHOUT_ITS_FILES, "-c", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"zsh does not run: {tried.stderr.strip()}")
    return program, WITHOUT_ITS_FILES
