"""A pool whose folder has a byte that is not UTF-8 in its name, as old folders in Latin-1 have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pool.pool_client import COMMAND
from tests.support.machine import scaled


@pytest.fixture(params=["HOME", "XDG_STATE_HOME", "BITFUSION_POOL_DIR"])
def environ(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """With such a folder for this variable."""
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder, 0o700)
    environ = {k: v for k, v in os.environ.items() if k not in ("BITFUSION_POOL_DIR", "XDG_STATE_HOME")}
    # not what Python takes for terminals that have no encoding at all
    return environ | {request.param: folder, "HOME": folder, "PYTHONIOENCODING": "utf-8:strict"}


def said(environ: dict[str, str], *words: str) -> bytes:
    done = subprocess.run(words, env=environ, capture_output=True, timeout=scaled(20), check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "commands",
    [
        ["run -n 1 -- true"],
        ["request_gpus -n 1", "client -- true", "release_gpus"],
        ["list_gpus", "health", "smi"],
    ],
)
def test_the_client_works(environ: dict[str, str], commands: list[str]) -> None:
    environ["BITFUSION_PYTHON"] = sys.executable
    for command in commands:
        assert b"nicode" not in said(environ, COMMAND, *command.split())


def test_the_administrators_command_names_it_as_it_is(environ: dict[str, str]) -> None:
    admin = [sys.executable, "-m", "bitfusion_pool.admin.cli"]
    for command in ("status", "simulate --gpus 2"):
        assert b"/caf\xe9" in said(environ, *admin, *command.split())
