"""Each thing that can be wrong with the pool's files has its own words, and what they advise cures it."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pool.pool_client import COMMAND, PoolClient

RUN = ("run", "-n", "1", "--", "true")
CURE = ". What to do: "


@pytest.fixture(autouse=True)
def no_state_folder(client: PoolClient) -> None:
    """The user's own pool is below HOME."""
    client.environ.pop("XDG_STATE_HOME", None)


@pytest.fixture
def shell(client: PoolClient, tmp_path: Path) -> Callable[[str], None]:
    """Runs a line of the advice as a person would, with our commands on PATH."""
    commands = tmp_path / "commands"
    commands.mkdir()
    admin = commands / "bitfusion-pool"
    root = Path(__file__).parents[2]
    admin.write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(root))} "
        f'exec {shlex.quote(sys.executable)} -m bitfusion_pool.admin.cli "$@"\n'
    )
    admin.chmod(0o755)
    environ = client.environ | {"PATH": f"{commands}:{os.environ['PATH']}"}

    def run(line: str) -> None:
        subprocess.run(["/bin/sh", "-ec", line], env=environ, check=True, stdout=subprocess.DEVNULL)

    return run


def problem(client: PoolClient) -> tuple[str, str]:
    """What `bitfusion run` says is wrong, and what it advises; it is the one line that it says."""
    done = client.do(*RUN)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("[INFO]")][-1:]
    said, found, cure = line.partition(CURE)
    assert found, line
    return said, cure


def works(client: PoolClient) -> None:
    done = client.do(*RUN)
    assert done.returncode == 0, done.stderr


def damaged(folder: Path) -> str:
    (folder / "ledger.db").write_bytes(b"not a ledger" * 100)
    return "file is not a database"


def without_a_table(folder: Path) -> str:
    with sqlite3.connect(folder / "ledger.db") as db:
        db.execute("DROP TABLE meta")
    db.close()
    return "no such table: meta"


@pytest.mark.parametrize("damage", [damaged, without_a_table])
def test_a_damaged_ledger(
    client: PoolClient, shell: Callable[[str], None], damage: Callable[[Path], str]
) -> None:
    works(client)
    why = damage(client.folder)
    said, cure = problem(client)
    assert said == f"Error: pool ledger {client.folder}/ledger.db is damaged: {why}"
    advice = "end the programs that use the pool, then make a new one: "
    assert cure == f"{advice}bitfusion-pool --dir {client.folder} init --force"
    shell(cure.removeprefix(advice))
    works(client)


def test_a_ledger_of_another_version(client: PoolClient, shell: Callable[[str], None]) -> None:
    works(client)
    with sqlite3.connect(client.folder / "ledger.db") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    said, cure = problem(client)
    assert said == (
        f"Error: pool ledger {client.folder}/ledger.db was made by another version of this program: "
        "its format is 99, this program reads 1"
    )
    advice = "use the version that made it, or make a new one once nothing runs: "
    assert cure == f"{advice}bitfusion-pool --dir {client.folder} init --force"
    shell(cure.removeprefix(advice))
    works(client)


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal", "ledger.db-shm"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkdir, "a folder"),
        (os.mkfifo, "a named pipe"),
        (lambda path: os.symlink("elsewhere", path), "a symbolic link"),
    ],
)
def test_something_else_in_place_of_the_ledger(
    client: PoolClient,
    shell: Callable[[str], None],
    name: str,
    make: Callable[[str], None],
    kind: str,
) -> None:
    works(client)
    path = client.folder / name
    path.unlink(missing_ok=True)
    make(str(path))
    said, cure = problem(client)
    assert said == f"Error: pool ledger cannot be used: {path} is {kind}, not a file of yours"
    assert cure == f"move it away: mv {path} {path}.old"
    shell(cure.removeprefix("move it away: "))
    works(client)


def test_a_folder_that_others_may_write_to(client: PoolClient) -> None:
    client.folder.mkdir()
    client.folder.chmod(0o777)
    state = Path(client.environ["HOME"]) / ".local" / "state"
    said, cure = problem(client)
    assert said == (
        f"Error: pool folder {client.folder} is not yours alone: {client.folder} can be changed by others "
        "(mode 0777); a pool is one user's own"
    )
    assert cure == f"unset BITFUSION_POOL_DIR; your own pool is {state}/bitfusion-pool"
    del client.environ["BITFUSION_POOL_DIR"]
    works(client)
    assert (state / "bitfusion-pool" / "ledger.db").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
@pytest.mark.parametrize("variable", ["BITFUSION_POOL_DIR", "XDG_STATE_HOME"])
def test_a_folder_of_somebody_else(client: PoolClient, tmp_path: Path, variable: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 54321, 54321)
    del client.environ["BITFUSION_POOL_DIR"]
    client.environ[variable] = str(theirs)
    folder = theirs if variable == "BITFUSION_POOL_DIR" else theirs / "bitfusion-pool"
    said, cure = problem(client)
    assert said == (
        f"Error: pool folder {folder} is not yours alone: {theirs} belongs to user 54321; "
        "a pool is one user's own"
    )
    home = client.environ["HOME"]
    assert cure == f"unset {variable}; your own pool is {home}/.local/state/bitfusion-pool"
    del client.environ[variable]
    works(client)
    assert list(theirs.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "value", "below", "why"),
    [
        ("BITFUSION_POOL_DIR", "{}/file/pool", "", "Not a directory"),
        ("BITFUSION_POOL_DIR", "{}/" + "x" * 256, "", "File name too long"),
        ("XDG_STATE_HOME", "{}/loop", "/bitfusion-pool", "Too many levels of symbolic links"),
        ("XDG_STATE_HOME", "{}/file", "/bitfusion-pool", "Not a directory"),
        ("HOME", "/proc", "/.local/state/bitfusion-pool", "No such file or directory"),
    ],
)
def test_a_folder_that_cannot_be_made(
    client: PoolClient, tmp_path: Path, variable: str, value: str, below: str, why: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    del client.environ["BITFUSION_POOL_DIR"]
    client.environ[variable] = value.format(tmp_path)
    said, cure = problem(client)
    folder = client.environ[variable] + below
    assert said == f"Error: pool folder {folder} cannot be written: {why}"
    advice = "set BITFUSION_POOL_DIR to a folder that you can write to, such as "
    assert cure == f"{advice}/tmp/bitfusion-pool-{os.geteuid()}"
    client.environ["BITFUSION_POOL_DIR"] = str(tmp_path / "such-as-this")
    works(client)


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
@pytest.mark.parametrize(
    ("prepare", "restore", "said", "cure"),
    [
        (
            "cat /dev/zero >filler 2>/dev/null || true",
            "rm filler",
            "pool folder {folder} has no room: ",
            "free some space on its disk, or set BITFUSION_POOL_DIR to a folder on another disk",
        ),
        (
            "mount -o remount,ro .",
            "mount -o remount,rw .",
            "pool folder {folder} cannot be written: Read-only file system",
            "set BITFUSION_POOL_DIR to a folder that you can write to, such as /tmp/bitfusion-pool-0",
        ),
    ],
    ids=["full", "read-only"],
)
@pytest.mark.parametrize("used", [True, False], ids=["used before", "new"])
def test_a_disk_that_takes_nothing(
    client: PoolClient, prepare: str, restore: str, said: str, cure: str, used: bool
) -> None:
    client.folder.mkdir(mode=0o700)
    run = '"$2" run -n 1 -- true'
    steps = [
        'mount -t tmpfs -o size=400k,mode=700 none "$1"',
        'cd "$1"',
        *([run] if used else []),
        prepare,
        f"{run} 2>$TMPDIR/said && exit 1",
        restore,
        run,
    ]
    script = "; ".join(steps)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(client.folder), COMMAND],
        env=client.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    line = (Path(client.environ["TMPDIR"]) / "said").read_text().splitlines()[-1]
    found, _, advice = line.partition(CURE)
    assert found.startswith("Error: " + said.format(folder=client.folder)), line
    assert advice == cure
    client.environ["BITFUSION_POOL_DIR"] = f"{client.folder}-on-another-disk"
    works(client)


def test_a_wrong_configuration(client: PoolClient, shell: Callable[[str], None]) -> None:
    client.configure("gpus = 4")
    said, cure = problem(client)
    path = client.folder / "pool.toml"
    assert said == (
        f"Error: pool configuration {path} is wrong: unknown key 'gpus'; known are servers, manners"
    )
    assert cure == f"correct it, or replace it: bitfusion-pool --dir {client.folder} simulate"
    shell(cure.removeprefix("correct it, or replace it: "))
    works(client)


def test_a_wrong_configuration_that_a_variable_names(client: PoolClient, tmp_path: Path) -> None:
    client.environ["BITFUSION_POOL_CONFIG"] = f"{tmp_path}/none.toml"
    said, cure = problem(client)
    assert said == (f"Error: pool configuration {tmp_path}/none.toml is wrong: No such file or directory")
    assert cure == "correct it, or unset BITFUSION_POOL_CONFIG"
    del client.environ["BITFUSION_POOL_CONFIG"]
    works(client)


def test_a_folder_for_temporary_files_that_is_gone_is_done_without(
    client: PoolClient, tmp_path: Path
) -> None:
    client.environ["TMPDIR"] = f"{tmp_path}/cleaned"
    works(client)


def test_no_folder_for_temporary_files(client: PoolClient) -> None:
    client.environ["TMPDIR"] = "/proc"
    said, cure = problem(client)
    assert said == "Error: pool cannot write an allocation file in /proc: No such file or directory"
    assert cure == "set TMPDIR to a folder that you can write to, such as /tmp"
    client.environ["TMPDIR"] = "/tmp"
    works(client)
