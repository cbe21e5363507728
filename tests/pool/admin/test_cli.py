"""`bitfusion-pool`: status, init, simulate, reap, shell."""

from __future__ import annotations

import os
from pathlib import Path

from tests.pool.pool_client import COMMAND, PoolClient


def test_another_pool_may_be_named(client: PoolClient, tmp_path: object) -> None:
    assert client.admin("--dir", f"{tmp_path}/other", "status").stdout.startswith(
        f"GPU pool in {tmp_path}/other"
    )


def test_a_shell_has_the_pools_own_client_before_any_other(client: PoolClient, tmp_path: Path) -> None:
    other = tmp_path / "bitfusion"
    other.write_text("#!/bin/sh\necho another client\n")
    other.chmod(0o755)
    client.environ["PATH"] = f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin"
    done = client.admin("--dir", f"{tmp_path}/other", "shell", "--", "bitfusion", "list_gpus")
    assert done.returncode == 0, done.stderr
    assert "server 0 [127.0.0.1:56001]" in done.stdout
    assert (tmp_path / "other").is_dir()
    ran = client.admin("shell", "sh", "-c", "bitfusion run -n 1 -p 0.5 -- echo ran; exit 3")
    assert ran.stdout.splitlines() == ["ran"]
    assert ran.returncode == 3


def test_a_shell_without_a_command_is_the_users_own(client: PoolClient, tmp_path: Path) -> None:
    shell = tmp_path / "myshell"
    shell.write_text("#!/bin/sh\necho $# arguments; command -v bitfusion\n")
    shell.chmod(0o755)
    client.environ["SHELL"] = str(shell)
    assert client.admin("shell").stdout.splitlines() == ["0 arguments", COMMAND]
    del client.environ["SHELL"]
    assert client.admin("shell").returncode == 0


def test_a_program_that_does_not_exist_is_one_line(client: PoolClient) -> None:
    done = client.admin("shell", "--", "no-such-program", "x")
    assert done.returncode == 127
    assert done.stderr == "Error: cannot run no-such-program: No such file or directory\n"
