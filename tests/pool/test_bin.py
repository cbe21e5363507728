"""The executable `bin/bitfusion`: which Python it runs with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pool.pool_client import COMMAND


def test_the_command_runs_from_a_python_that_knows_nothing_of_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", COMMAND, "version"], capture_output=True, text=True, cwd="/"
    )
    assert done.stdout.startswith("bitfusion version 4.0.0-")


@pytest.mark.parametrize(
    ("folder", "used"),
    [("lib/python3.11/site-packages", "own"), ("lib/python3/dist-packages", "own"), ("checkout", "path")],
)
def test_an_installed_command_runs_with_the_python_it_is_installed_for(
    tmp_path: Path, folder: str, used: str
) -> None:
    command = tmp_path / "prefix" / folder / "bitfusion_pool" / "bin" / "bitfusion"
    command.parent.mkdir(parents=True)
    shutil.copy(COMMAND, command)
    for name, place in (("own", tmp_path / "prefix" / "bin"), ("path", tmp_path / "path")):
        place.mkdir()
        python = place / "python3"
        python.write_text(f'#!/bin/sh\necho {name} "$1" "$2" "$4"\n')
        python.chmod(0o755)
    environ = {"PATH": f"{tmp_path}/path:/usr/bin:/bin"}
    done = subprocess.run([command, "version"], env=environ, capture_output=True, text=True)
    assert done.stdout == f"{used} -I -S version\n"
