"""The folder with the executable stand-in, whatever became of the mode bit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bitfusion_pool
from bitfusion_client.find_client import find_client
from bitfusion_pool import embedded
from tests.pool.pool_client import COMMAND, PoolClient


def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the packages whose command is not executable."""
    for name in ("bitfusion_pool", "bitfusion_client"):
        source = Path(bitfusion_pool.__file__).parent.parent / name
        shutil.copytree(source, tmp_path / "lib" / name)
    command = tmp_path / "lib" / "bitfusion_pool" / "bin" / "bitfusion"
    command.chmod(0o644)
    monkeypatch.setattr(embedded, "__file__", str(command.parent.parent / "embedded.py"))
    return command


def test_the_packages_own_folder_is_used() -> None:
    assert embedded.command_folder() == os.path.dirname(COMMAND)


def test_a_lost_mode_bit_is_set_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = installed(tmp_path, monkeypatch)
    assert embedded.command_folder() == str(command.parent)
    assert command.stat().st_mode & 0o111 == 0o111


def test_in_a_read_only_installation_a_private_folder_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: PoolClient
) -> None:
    command = installed(tmp_path, monkeypatch)

    def refuse(path: str, mode: int) -> None:
        if path == str(command):
            raise PermissionError(1, "Operation not permitted", path)
        os.fchmod(fd := os.open(path, os.O_RDONLY), mode)
        os.close(fd)

    monkeypatch.setattr(os, "chmod", refuse)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache it's")}
    folder = embedded.command_folder(environ)
    assert folder == str(tmp_path / "cache it's" / "bitfusion_pool" / "bin")
    script = Path(folder) / "bitfusion"
    before = script.stat()
    assert embedded.command_folder(environ) == folder
    assert script.stat().st_ino == before.st_ino
    done = subprocess.run(
        [script, "run", "-n", "1", "--", "echo", "a  b"], env=client.environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "a  b\n")
    found = find_client(None, {"PATH": folder})
    assert (found.path, found.kind, found.is_simulated_pool) == (str(script), "embedded", True)


def test_the_command_runs_from_a_python_that_knows_nothing_of_the_package(client: PoolClient) -> None:
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
