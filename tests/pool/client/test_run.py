"""`bitfusion run`, seen from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from bitfusion_client.client_lines import Waiting
from bitfusion_client.client_output import parse_line
from bitfusion_pool.ledger.entries import HELD, WAITING
from tests.pool.pool_client import COMMAND, PoolClient, uniform, until

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
COMMANDS = [
    *("run", "request_gpus", "client", "release_gpus"),
    *("list_gpus", "smi", "health", "version", "help"),
]


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
        (["frobnicate"], 1, 'no such command: "frobnicate"; `bitfusion help` lists them'),
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


def test_the_program_finds_its_lease_in_the_environment(client: PoolClient) -> None:
    done = client.do(
        "run", "-n", "2", "-p", "0.25", "--", "env", "-0", env={"CUDA_VISIBLE_DEVICES": "0,1", "X": "a\nb"}
    )
    found = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert found["X"] == "a\nb"
    assert found["CUDA_VISIBLE_DEVICES"] == ""
    assert len(found["BITFUSION_POOL_LEASE"]) == 16
    assert json.loads(found["BITFUSION_POOL_DEVICES"]) == [
        {
            "id": number,
            "name": "Simulated Tesla V100-PCIE-16GB",
            "memory_mib": 4040,
            "total_mib": 16160,
            "server": "127.0.0.1:56001",
            "simulated": True,
        }
        for number in (0, 1)
    ]
    assert os.path.isfile(found["BF_BIN_PATH"] + "/bitfusion")
    assert found["BF_ADAPTOR_PATH"].endswith("/bitfusion_pool/")
    assert found["BF_ADAPTOR_RDMA"] == "0"
    assert found["BITFUSION_POOL_LOCK_FD"].isdigit()


def test_odd_device_names_are_still_json(client: PoolClient) -> None:
    client.configure('[[servers]]\n[[servers.devices]]\nname = "Tesla \\"Ü\\" \\\\"\n')
    done = client.do("run", "-n", "1", "--", "printenv", "BITFUSION_POOL_DEVICES")
    assert json.loads(done.stdout)[0]["name"] == 'Tesla "Ü" \\'


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


def test_whoever_waits_says_its_place_and_who_is_ahead(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    first = client.start("run", "-n", "1", "--", "true", env={"JPY_SESSION_NAME": "/home/me/a;b.ipynb"})
    client.until_waiting(1)
    second = client.start("run", "-n", "1", "-p", "0.5", "--", "/usr/bin/env", "-i", "x", "y")
    client.until_waiting(2)
    assert second.stderr is not None
    lines = [parse_line(second.stderr.readline()) for _ in range(3)]
    waiting = lines[-1]
    assert isinstance(waiting, Waiting)
    assert (waiting.queue_position, waiting.queue_length) == (2, 2)
    holder, earlier = waiting.ahead
    assert holder.startswith("root: boss.ipynb (2 GPUs, partial 1, ") or ": boss.ipynb (2 GPUs" in holder
    assert ": a,b.ipynb (1 GPUs, partial 1, " in earlier
    with client.ledger() as ledger:
        assert [entry.holder.label for entry in ledger.entries()] == ["boss.ipynb", "a,b.ipynb", "env -i x"]
    os.killpg(everything_taken.pid, signal.SIGKILL)
    assert first.wait(20) == 0
    second.communicate(timeout=20)
    first.communicate()


def test_a_wait_ends_after_its_timeout(client: PoolClient, everything_taken: subprocess.Popen[str]) -> None:
    done = client.do("run", "-n", "1", "--timeout", "300ms", "--", "true")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: timed out after 300ms waiting for 1 GPUs"
    assert client.entries(WAITING) == []


def test_a_killed_wrapper_keeps_the_gpus_as_long_as_its_program_lives(client: PoolClient) -> None:
    process = client.start("run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 60")
    assert process.stdout is not None
    program = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    waiting = client.start("run", "-n", "1", "--", "true")
    client.until_waiting(1)
    assert client.admin("reap").stdout.startswith("released 0 ")
    os.kill(program, signal.SIGKILL)
    assert waiting.wait(20) == 0
    waiting.communicate()
    process.communicate()


def test_a_killed_waiter_leaves_no_ticket(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    process = client.start("run", "-n", "1", "--", "true")
    client.until_waiting(1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert client.admin("reap").stdout == (
        "released 1 leases and queue positions, removed 0 leftover lock files\n"
    )
    assert client.entries(WAITING) == []


def test_gpus_stay_taken_while_something_the_program_left_behind_may_use_them(client: PoolClient) -> None:
    done = client.start("run", "-n", "2", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
    out, err = done.communicate(timeout=20)
    assert done.returncode == 0
    assert uniform(err).splitlines()[-1] == (
        "[WARN] TIME The GPUs stay allocated until the processes the command left behind have ended"
    )
    assert len(client.entries(HELD)) == 1
    os.kill(int(out), signal.SIGKILL)
    until(lambda: client.admin("reap").stdout.startswith("released 1 ") or not client.entries(HELD))


@pytest.mark.parametrize("stream", ["stderr", "stdout"])
def test_a_reader_that_is_gone_does_not_keep_it_from_releasing(client: PoolClient, stream: str) -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [COMMAND, "run", "-n", "2", "--", "sh", "-c", "read line; exit 5"],
        env={**client.environ, "BITFUSION_POOL_MANNERS": f"stream={stream}"},
        stdin=subprocess.PIPE,
        stdout=write_end if stream == "stdout" else subprocess.DEVNULL,
        stderr=write_end if stream == "stderr" else subprocess.DEVNULL,
    )
    os.close(write_end)
    client.until_held()
    os.close(read_end)
    process.communicate(b"go\n", timeout=20)
    assert process.returncode == 5
    assert client.entries(HELD) == []
    assert os.listdir(client.folder / "locks") == []


def test_a_reader_that_hangs_does_not_keep_the_gpus(client: PoolClient) -> None:
    read_end, write_end = os.pipe()
    process = subprocess.Popen(
        [COMMAND, "run", "-n", "2", "--", "sh", "-c", "read line; exit 5"],
        env=client.environ,
        stdin=subprocess.PIPE,
        stderr=write_end,
    )
    try:
        said = b""
        while b"telemetry" not in said:
            said += os.read(read_end, 4096)
        # an open file of our own, so that only our writes do not block
        filler = os.open(f"/proc/self/fd/{write_end}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (4096, 1):
            try:
                while True:
                    os.write(filler, b"x" * size)
            except BlockingIOError:
                pass
        os.close(filler)
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        until(lambda: not client.entries(HELD))
        assert process.poll() is None
    finally:
        os.close(write_end)
        os.close(read_end)
        process.communicate(timeout=20)
    assert process.returncode == 5


def test_a_ledger_lost_while_the_program_runs_does_not_change_its_status(client: PoolClient) -> None:
    process = subprocess.Popen(
        [COMMAND, "run", "-n", "1", "--", "sh", "-c", "read line; exit 4"],
        env=client.environ,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    client.until_held()
    for ending in ("", "-wal", "-shm"):
        path = client.folder / f"ledger.db{ending}"
        if path.exists():
            path.unlink()
    (client.folder / "ledger.db").write_text("damaged")
    _, err = process.communicate("go\n", timeout=20)
    assert process.returncode == 4
    assert uniform(err).splitlines()[-1] == (
        f"[WARN] TIME Unable to release GPUs: pool ledger {client.folder}/ledger.db is unreadable: "
        "file is not a database"
    )


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


def test_what_a_run_needs_from_its_start_is_little(client: PoolClient) -> None:
    script = (
        "import sys; sys.path.append(sys.argv[1]); "
        "import bitfusion_pool.client.run, bitfusion_pool.client.cli; "
        "print(' '.join(sorted(sys.modules)))"
    )
    root = str(Path(COMMAND).parent.parent.parent)
    words = [client.environ["BITFUSION_PYTHON"], "-I", "-S", "-c", script, root]
    loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    heavy = "re enum signal json subprocess inspect dataclasses typing tomllib asyncio"
    assert set(heavy.split(" ")) & set(loaded) == set()


def test_a_full_disk_is_told_in_one_line(client: PoolClient) -> None:
    client.folder.mkdir()
    script = 'mount -t tmpfs -o size=160k none "$1" || exit 99; cd "$1"; "$2" list_gpus >/dev/null 2>&1; '
    script += 'cat /dev/zero > filler 2>/dev/null; exec "$2" run -n 1 -- true'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(client.folder), COMMAND],
        env=client.environ,
        capture_output=True,
        text=True,
    )
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("this machine does not allow mounts of one's own")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"Error: pool ledger {client.folder}/ledger.db is unreadable: ")
    assert last.endswith(("database or disk is full", "disk I/O error", "No space left on device"))
