"""The `bitfusion` command as a whole: help, version, mistakes, how little it imports."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bitfusion_pool.ledger.entries import HELD, WAITING
from tests.pool.pool_client import COMMAND, PoolClient

COMMANDS = [
    *("run", "request_gpus", "client", "release_gpus"),
    *("list_gpus", "smi", "health", "version", "help"),
]


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        (["run", "--", "true"], 1, "the number of GPUs is missing: -n"),
        (["run", "-n", "1"], 1, "there is no program to run"),
        (["run", "-n", "1", "--", ""], 1, "there is no program to run"),
        (["run", "-n", "0", "true"], 1, 'invalid value "0" for -n: must be a whole number from 1 to 1024'),
        (
            ["run", "-n", "1", "-p", "1.5", "true"],
            1,
            'invalid value "1.5" for -p: must be greater than 0.0 and at most 1.0',
        ),
        (["run", "-n", "1", "-z", "true"], 1, "flag provided but not defined: -z"),
        (["run", "-n"], 1, "flag needs an argument: -n"),
        (["frobnicate"], 1, 'unknown command "frobnicate"; `bitfusion help` lists the commands'),
        (
            ["run", "-n", "4", "true"],
            1,
            "no server can satisfy the request: 4 GPUs with 16160 MiB of memory each; "
            "the largest server has 2 GPUs with 16160 MiB",
        ),
    ],
)
def test_a_mistake_ends_in_one_error_line(
    client: PoolClient, words: list[str], status: int, problem: str
) -> None:
    done = client.do(*words)
    assert done.returncode == status
    assert done.stderr.splitlines()[-1] == f"Error: {problem}"
    assert client.entries(HELD) == client.entries(WAITING) == []


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--help"],
        ["run", "-h"],
        ["run", "-n", "1", "--help"],
        ["request_gpus", "-h"],
        ["health", "-h"],
    ],
)
def test_help_may_be_asked_for_behind_a_command(client: PoolClient, words: list[str]) -> None:
    done = client.do(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == client.do("help").stdout
    assert "-n N, --num_gpus N " in done.stdout


def test_help_behind_the_program_is_the_programs(client: PoolClient) -> None:
    done = client.do("run", "-n", "1", "printf", "%s\\n", "-h", "--help")
    assert "-h\n--help\n" in done.stdout
    assert "USAGE" not in done.stdout


def test_the_command_works_by_another_name_and_without_being_told_its_python(
    client: PoolClient, tmp_path: Path
) -> None:
    link = tmp_path / "my-bitfusion"
    link.symlink_to(COMMAND)
    environ = {key: value for key, value in client.environ.items() if key != "BITFUSION_PYTHON"}
    done = subprocess.run([link, "version"], env=environ, capture_output=True, text=True)
    assert done.stdout == (
        "bitfusion version 4.0.0-00000000 (embedded pool, stand-in for the vSphere Bitfusion client)\n"
    )


@pytest.mark.parametrize("words", [["help"], [], ["--help"], ["h"]])
def test_help_lists_all_commands(client: PoolClient, words: list[str]) -> None:
    done = client.do(*words)
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"   {name} " in done.stdout


@pytest.mark.parametrize("pool", ["own_pool", "service_pool, bitfusion_pool.client.pools.life_by_lock"])
def test_what_a_run_needs_from_its_start_is_little(client: PoolClient, pool: str) -> None:
    script = (
        "import sys; sys.path.append(sys.argv[1]); "
        f"import bitfusion_pool.client.commands.run, bitfusion_pool.client.pools.{pool}; "
        "import bitfusion_pool.client.cli; "
        "print(' '.join(sorted(sys.modules)))"
    )
    root = str(Path(COMMAND).parent.parent.parent)
    words = [client.environ["BITFUSION_PYTHON"], "-I", "-S", "-c", script, root]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    heavy = "re enum signal json subprocess inspect dataclasses typing tomllib asyncio socket selectors _ssl"
    heavy += " sqlite3" if pool != "own_pool" else ""
    heavy += " bitfusion_pool.client.kernel_state_file bitfusion_client.kernel_state.activity"
    assert set(heavy.split(" ")) & set(loaded) == set()
