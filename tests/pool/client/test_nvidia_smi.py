"""`nvidia-smi` in programs whose GPUs are simulated: what it tells, what it refuses, and when it is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_pool.client.program.nvidia_smi import NO_GPU, WRONG_OPTION, main
from bitfusion_pool.inventory.device_sources import SIMULATED_COMMANDS
from tests.pool.pool_client import PoolClient

HEADING = "SIMULATED: the CPU computes. The embedded pool's GPUs have no driver and no CUDA.\n"
NAME = "Simulated Tesla V100-PCIE-16GB"


@pytest.mark.parametrize(
    ("size", "held"),
    [
        (["-n", "1"], ["16160 of 16160"]),
        (["-n", "1", "-p", "0.5"], ["8080 of 16160"]),
        (["-n", "2", "-m", "4000"], ["4000 of 16160"] * 2),
    ],
)
def test_it_shows_what_the_program_holds_under_a_heading_that_says_simulated(
    client: PoolClient, size: list[str], held: list[str]
) -> None:
    done = client.do("run", *size, "--", "nvidia-smi")
    assert (done.returncode, done.stdout[: len(HEADING)]) == (0, HEADING)
    rows = [[word.strip() for word in line.split("│")[1:-1]] for line in done.stdout.splitlines()[4:-1]]
    assert rows == [[str(gpu), NAME, mib, "127.0.0.1:56001"] for gpu, mib in enumerate(held)]


@pytest.mark.parametrize("option", ["-L", "--list-gpus"])
def test_each_line_of_the_list_says_simulated_and_is_one_gpu(client: PoolClient, option: str) -> None:
    done = client.do("run", "-n", "2", "-p", "0.25", "--", "sh", "-c", f"nvidia-smi {option} | cat")
    assert done.stdout.splitlines() == [
        f"GPU {gpu}: {NAME} (SIMULATED: 4040 of 16160 MiB, the CPU computes)" for gpu in (0, 1)
    ]


@pytest.mark.parametrize(
    "words", [["-q"], ["--query-gpu=name,memory.total", "--format=csv"], ["-L", "-i", "0"]]
)
def test_what_only_a_driver_knows_is_refused_with_what_there_is(
    client: PoolClient, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(words, {"BITFUSION_POOL_DEVICES": "[{}]"}) == WRONG_OPTION
    assert capfd.readouterr() == (
        "",
        f"{HEADING}Error: nvidia-smi {' '.join(words)}: only a real GPU's driver could answer that. "
        "Available: nvidia-smi, nvidia-smi -L, nvidia-smi -h; "
        "BITFUSION_POOL_DEVICES holds the same as JSON\n",
    )
    done = client.do("run", "-n", "1", "--", "nvidia-smi", *words)
    assert (done.returncode, done.stdout) == (WRONG_OPTION, "")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_headed_simulated_too(option: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([option], {}) == 0
    said = capfd.readouterr().out
    assert said.startswith(HEADING)
    assert "nvidia-smi -L, --list-gpus" in said


@pytest.mark.parametrize("devices", ["", "[]", "{}", "7", "[3]", "[", None])
def test_without_a_lease_it_says_that_nothing_is_held(
    devices: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([], {} if devices is None else {"BITFUSION_POOL_DEVICES": devices}) == NO_GPU
    said = "Error: this program holds no GPU (no BITFUSION_POOL_DEVICES)\n"
    assert capfd.readouterr() == ("", HEADING + said)


def test_a_name_of_several_lines_stays_one(capfd: pytest.CaptureFixture[str]) -> None:
    device = {"id": 0, "name": "a\nb\x1b[1m", "memory_mib": 1, "total_mib": 2}
    main(["-L"], {"BITFUSION_POOL_DEVICES": json.dumps([device])})
    assert capfd.readouterr().out == "GPU 0: a b\\x1b[1m (SIMULATED: 1 of 2 MiB, the CPU computes)\n"


def test_the_machines_own_command_is_behind_it_and_named(client: PoolClient, tmp_path: Path) -> None:
    own = _command(tmp_path / "own" / "nvidia-smi", "echo Tesla")
    path = f"{own.parent}{os.pathsep}{os.environ['PATH']}"
    done = client.do("run", "-n", "1", "--", "nvidia-smi", env={"PATH": path})
    assert done.stdout.startswith(HEADING)
    last = f"{own} shows this machine's own GPUs; this program does not use them."
    assert done.stdout.splitlines()[-1] == last
    listed = client.do("run", "-n", "1", "--", "nvidia-smi", "-L", env={"PATH": path}).stdout
    assert len(listed.splitlines()) == 1


def test_outside_a_lease_nobody_finds_it(client: PoolClient) -> None:
    done = subprocess.run(
        ["sh", "-c", "command -v nvidia-smi"], env=client.environ, capture_output=True, text=True
    )
    assert SIMULATED_COMMANDS not in done.stdout
    done = client.do("run", "-n", "1", "--", "sh", "-c", "command -v nvidia-smi bitfusion")
    assert done.stdout.splitlines()[0] == f"{SIMULATED_COMMANDS}/nvidia-smi"
    assert os.listdir(SIMULATED_COMMANDS) == ["nvidia-smi"], "what lies there hides commands of that name"


def test_it_runs_with_the_python_of_the_pool_wherever_it_is_called(
    client: PoolClient, tmp_path: Path
) -> None:
    """A notebook's folder may hold modules that are called as the standard library's are."""
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    broken = _command(tmp_path / "old" / "python3", "echo too old; exit 1")
    script = 'cd "$0"; PATH="$1:$PATH" PYTHONPATH=. exec nvidia-smi -L'
    words = ["sh", "-c", script, str(tmp_path), str(broken.parent)]
    for python in (sys.executable, ""):
        done = client.do("run", "-n", "1", "--", *words, env={"BITFUSION_PYTHON": python})
        assert done.stdout.startswith(f"GPU 0: {NAME}"), done


def test_gpus_of_a_reservation_are_shown_too(client: PoolClient) -> None:
    client.do("request_gpus", "-n", "1", "-p", "0.5")
    assert "8080 of 16160 MiB" in client.do("client", "nvidia-smi", "-L").stdout
    client.do("release_gpus")


def _command(path: Path, script: str) -> Path:
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
