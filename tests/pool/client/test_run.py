"""`bitfusion run`, seen from outside."""

from __future__ import annotations

import subprocess

import pytest

from bitfusion_pool.ledger.entries import HELD
from tests.pool.pool_client import PoolClient, uniform

BLOCK = """\
[INFO] TIME Query server 127.0.0.1:56001 to claim client id: UUID
[INFO] TIME Query server 127.0.0.1:56001 gpu availability
[INFO] TIME Choosing GPUs from server list [127.0.0.1:56001]
[INFO] TIME Requesting GPUs [0] with 8080 MiB of memory from server 0, with version 4.0.0-00000000...
Requested resources:
Server List: 127.0.0.1:56001
Client idle timeout: 0 min
[INFO] TIME Locked 1 GPUs with partial memory 0.5, configuration saved to 'FILE'
[INFO] TIME Running client command 'sh -c cat >/dev/null; true' on 1 GPUs, with the following servers:
[INFO] TIME 127.0.0.1 55001 UUID 56001 4.0.0-00000000

[INFO] TIME Command started, launching telemetry process: UUID | 127.0.0.1:56001
[INFO] TIME Releasing GPUs from config file 'FILE'...
[INFO] TIME Released GPUs on 1 servers and removed generated config file 'FILE'
"""


def test_it_says_what_client_4_0_says_line_by_line(client: PoolClient) -> None:
    done = client.do("run", "-n", "1", "-p", "0.500000", "--", "sh", "-c", "cat >/dev/null; true")
    assert uniform(done.stderr) == BLOCK
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("options", "requesting", "locked"),
    [
        (["-n", "2"], "GPUs [0 1] with 16160 MiB", "2 GPUs with partial memory 1,"),
        (["-n", "1", "-p", "0.37"], "GPUs [0] with 5979 MiB", "1 GPUs with partial memory 0.37,"),
        (["-n", "2", "-m", "4040"], "GPUs [0 1] with 4040 MiB", "2 GPUs with partial memory 0.25,"),
        (["-n", "1", "--filter", "device.id=1"], "GPUs [1] with 16160 MiB", "1 GPUs with partial memory 1,"),
    ],
)
def test_sizes_appear_as_the_client_writes_them(
    client: PoolClient, options: list[str], requesting: str, locked: str
) -> None:
    done = client.do("run", *options, "--", "true")
    assert f"Requesting {requesting} of memory from server 0" in done.stderr
    assert f"Locked {locked}" in done.stderr


@pytest.mark.parametrize(
    "program",
    [
        ["--", "echo", "a  b", "$HOME", "--port", "1"],
        ["echo", "a  b", "$HOME", "--port", "1"],
        ["echo 'a  b' '$HOME' --port 1"],
        ["--", "echo 'a  b' '$HOME' --port 1"],
    ],
)
def test_the_program_may_be_words_or_one_string(client: PoolClient, program: list[str]) -> None:
    assert client.do("run", "-n", "1", *program).stdout == "a  b $HOME --port 1\n"


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_the_status_is_the_programs(client: PoolClient, script: str, status: int) -> None:
    assert client.do("run", "-n", "1", "--", "sh", "-c", script).returncode == status
    assert client.entries(HELD) == []


@pytest.mark.parametrize(
    ("program", "status", "why"),
    [
        ("no-such-program", 127, "executable file not found in $PATH"),
        ("/etc/passwd", 126, "permission denied"),
    ],
)
def test_a_program_that_cannot_start_gives_the_gpus_back(
    client: PoolClient, program: str, status: int, why: str
) -> None:
    done = client.do("run", "-n", "1", program)
    assert done.returncode == status
    assert f'Error: exec: "{program}": {why}' in done.stderr
    assert "Released GPUs on 1 servers" in done.stderr
    assert client.entries(HELD) == []


def test_the_program_starts_as_if_nothing_were_in_between(client: PoolClient) -> None:
    words = ["cat", "/proc/self/stat", "/proc/self/status"]
    plain = subprocess.run(words, capture_output=True, text=True, check=True)
    process = client.start("run", "-n", "1", "--", *words)
    out, _ = process.communicate()
    assert int(out.split(") ")[1].split()[2]) == process.pid  # the process group

    def signals(text: str) -> list[int]:
        lines = [line.split() for line in text.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
        # 32 and 33 are the C library's own, which it lets posix_spawn ignore
        return [int(mask, 16) & ~0x180000000 for _, mask in lines]

    assert signals(out) == signals(plain.stdout)
