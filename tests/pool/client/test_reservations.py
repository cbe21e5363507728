"""`request_gpus`, `client`, `release_gpus`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from bitfusion_pool.ledger.entries import HELD, WAITING
from bitfusion_pool.ledger.liveness import clock
from tests.pool.pool_client import PoolClient, finish, uniform
from tests.support.waiting import wait_until

NONE_REQUESTED = "no GPUs are requested: use request_gpus first, or name the allocation with -f FILE"
REQUESTED = """\
[INFO] TIME Query server 127.0.0.1:56001 to claim client id: UUID
[INFO] TIME Query server 127.0.0.1:56001 gpu availability
[INFO] TIME Choosing GPUs from server list [127.0.0.1:56001]
[INFO] TIME Requesting GPUs [0] with 2048 MiB of memory from server 0, with version 4.0.0-00000000...
Requested resources:
Server List: 127.0.0.1:56001
Client idle timeout: 0 min
[INFO] TIME Locked 1 GPUs with partial memory 0.126733, configuration saved to 'FILE'
"""
RELEASED = """\
[INFO] TIME Releasing GPUs from config file 'FILE'...
[INFO] TIME Released GPUs on 1 servers and removed generated config file 'FILE'
"""
USED = """\
[INFO] TIME Query server 127.0.0.1:56001 to claim client id: UUID
[INFO] TIME Running client command 'printenv BITFUSION_POOL_LEASE' on 1 GPUs, with the following servers:
[INFO] TIME 127.0.0.1 55001 UUID 56001 4.0.0-00000000

[INFO] TIME Command started, launching telemetry process: UUID | 127.0.0.1:56001
"""


def saved_to(text: str) -> str:
    found = re.search("saved to '(.*)'", text)
    assert found
    return found[1]


def test_request_use_release(client: PoolClient) -> None:
    requested = client.do("request_gpus", "-n", "1", "-m", "2048")
    assert (requested.returncode, requested.stdout, uniform(requested.stderr)) == (0, "", REQUESTED)
    (entry,) = client.entries(HELD)
    assert client.admin("reap").stdout.startswith("released 0 ")
    for _ in range(2):
        used = client.do("client", "--", "printenv", "BITFUSION_POOL_LEASE")
        assert (used.returncode, used.stdout) == (0, f"{entry.entry_id}\n")
        assert uniform(used.stderr) == USED
    released = client.do("release_gpus")
    assert (released.returncode, uniform(released.stderr)) == (0, RELEASED)
    assert client.entries(HELD) == []
    assert os.listdir(client.folder / "locks") == []
    client.do("request_gpus", "-n", "1")
    (entry,) = client.entries(HELD)
    assert client.admin("end", entry.entry_id).stdout == f"ended {entry.entry_id}\n"
    assert not os.path.exists(saved_to(requested.stderr))


def in_a_shared_home(client: PoolClient, tmp_path: Path) -> dict[str, str]:
    """Others may write in the home, as in the volume of a pod, and in the folder of temporary files."""
    home, temporary = tmp_path / "volume", tmp_path / "tmp"
    for folder, mode in ((home, 0o777), (temporary, 0o1777)):
        folder.mkdir()
        folder.chmod(mode)
    return {**client.environ, "HOME": str(home), "TMPDIR": str(temporary)}


def test_request_use_release_in_a_home_that_others_can_write_to(client: PoolClient, tmp_path: Path) -> None:
    env = in_a_shared_home(client, tmp_path)
    assert client.do("request_gpus", "1", env=env).returncode == 0
    (entry,) = client.entries(HELD)
    used = client.do("client", "--", "printenv", "BITFUSION_POOL_LEASE", env=env)
    assert (used.returncode, used.stdout) == (0, f"{entry.entry_id}\n"), used.stderr
    assert client.do("release_gpus", env=env).returncode == 0
    assert client.entries(HELD) == []
    assert os.listdir(tmp_path / "volume") == []
    own = tmp_path / f"tmp/bitfusion-user-{os.geteuid()}"
    assert own.stat().st_mode & 0o777 == 0o700


def test_a_list_that_others_could_have_written_is_not_read(client: PoolClient, tmp_path: Path) -> None:
    env = in_a_shared_home(client, tmp_path)
    prepared = tmp_path / f"tmp/bitfusion-user-{os.geteuid()}"
    prepared.mkdir()
    prepared.chmod(0o777)
    requested = client.do("request_gpus", "1", env=env)
    (prepared / "requested_gpus").write_text(saved_to(requested.stderr))
    for words in (["client", "--", "true"], ["release_gpus"]):
        assert client.do(*words, env=env).stderr == f"Error: {NONE_REQUESTED}\n"
    assert client.do("release_gpus", "-f", saved_to(requested.stderr), env=env).returncode == 0


def test_the_number_of_gpus_may_stand_alone(client: PoolClient) -> None:
    assert client.do("request_gpus", "2").returncode == 0
    assert client.entries(HELD)[0].request.gpus == 2
    assert client.do("release_gpus").returncode == 0


def test_the_status_of_a_client_is_its_programs(client: PoolClient) -> None:
    client.do("request_gpus", "1")
    assert client.do("client", "sh -c 'exit 6'").returncode == 6
    assert client.do("client", "no-such-program").returncode == 127
    client.do("release_gpus")


def test_allocations_may_be_named(client: PoolClient, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a", "b")]
    for file in files:
        assert client.do("request_gpus", "-n", "1", "-f", file).returncode == 0
        assert os.stat(file).st_mode & 0o777 == 0o600
    first = client.do("client", "-f", files[0], "--", "printenv", "BITFUSION_POOL_LEASE").stdout
    newest = client.do("client", "--", "printenv", "BITFUSION_POOL_LEASE").stdout
    assert [one.entry_id for one in client.entries(HELD)] == [first.strip(), newest.strip()]
    assert client.do("release_gpus", f"-f={files[1]}").returncode == 0
    assert [one.entry_id for one in client.entries(HELD)] == [first.strip()]
    assert client.do("release_gpus").returncode == 0
    assert client.entries(HELD) == []


def test_a_forgotten_run_can_be_released_by_its_allocation_file(client: PoolClient) -> None:
    process = client.start("run", "-n", "2", "--", "sh", "-c", "echo go; sleep 600")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    path = next(saved_to(line) for line in process.stderr if "saved to" in line)
    assert client.do("release_gpus", "-f", path).returncode == 0
    assert client.entries(HELD) == []
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_a_forgotten_request_is_taken_back_after_a_while(client: PoolClient) -> None:
    env = {"BITFUSION_POOL_MANNERS": "auto_release=0.3"}
    path = saved_to(client.do("request_gpus", "2", env=env).stderr)
    waiting = client.do("run", "-n", "1", "--", "true")
    assert waiting.returncode == 0
    late = client.do("client", "--", "true")
    assert late.returncode == 1
    assert late.stderr.splitlines()[-1] == (
        f"Error: the GPUs of {path} are no longer allocated: released, or not used for too long"
    )


def test_a_request_that_is_used_is_not_forgotten(client: PoolClient, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    client.do("request_gpus", "1")
    env = {"BITFUSION_POOL_MANNERS": "auto_release=0.2"}
    used = client.start("client", "--", "cat", str(pipe), env=env)

    def expired() -> bool:
        (entry,) = client.entries(HELD)
        return entry.expires_at is not None and entry.expires_at < clock()

    wait_until(expired)
    assert client.admin("reap").stdout.startswith("released 0 ")
    pipe.write_text("end")
    assert finish(used)[0] == "end"
    assert used.returncode == 0
    wait_until(lambda: client.admin("reap") and not client.entries(HELD))


def test_a_request_that_waits_can_be_interrupted(
    client: PoolClient, everything_taken: subprocess.Popen[str]
) -> None:
    process = client.start("request_gpus", "1")
    client.until_waiting(1)
    os.kill(process.pid, signal.SIGINT)
    finish(process)
    assert process.returncode == 130
    assert client.entries(WAITING) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["client", "--", "true"],
            "no GPUs are requested: use request_gpus first, or name the allocation with -f FILE",
        ),
        (
            ["release_gpus"],
            "no GPUs are requested: use request_gpus first, or name the allocation with -f FILE",
        ),
        (["client"], "there is no program to run"),
        (
            ["release_gpus", "-f", "/nowhere"],
            "allocation file /nowhere cannot be read: No such file or directory",
        ),
        (
            ["release_gpus", "-f", "/dev/null"],
            "allocation file /dev/null cannot be read: /dev/null is a device, not a file of yours",
        ),
        (["release_gpus", "-f", __file__], f"allocation file {__file__} cannot be read: it names no lease"),
        (["release_gpus", "-f"], "flag needs an argument: -f"),
        (["release_gpus", "-x"], "flag provided but not defined: -x"),
        (["release_gpus", "now"], "unexpected word: now"),
        (["request_gpus", "1", "true"], "request_gpus runs no program: true"),
    ],
)
def test_a_mistake_ends_in_one_error_line(client: PoolClient, words: list[str], problem: str) -> None:
    done = client.do(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == f"Error: {problem}"
    assert not client.folder.exists() or client.entries(HELD) == []
