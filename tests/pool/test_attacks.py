"""What another user of the machine can do to somebody who runs our commands: nothing.

No file outside the pool is made, changed or read, nothing ends, and nobody is kept waiting.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.ledger import Ledger
from tests.pool.holders import somebody
from tests.pool.pool_client import COMMAND
from tests.pool.two_users import ATTACKER, SECRET, TwoUsers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")

COMMANDS = (
    ("bitfusion", "run", "-n", "1", "--", "true"),
    ("bitfusion", "request_gpus", "-n", "1"),
    ("bitfusion", "release_gpus"),
    ("bitfusion", "health"),
    ("bitfusion-pool", "status"),
    ("bitfusion-pool", "simulate", "--gpus", "3"),
    ("bitfusion-pool", "reap"),
    ("bitfusion-pool", "init", "--force"),
    ("bitfusion", "run", "-n", "1", "--", "true"),
)

Prepare = Callable[[TwoUsers], None]


@pytest.fixture
def users() -> Iterator[TwoUsers]:
    users = TwoUsers()
    yield users
    users.remove()


def once_open(plant: Callable[[TwoUsers, Path], None]) -> Prepare:
    """The victim's pool was writable by everybody for a while; what was left in it then is still there."""

    def prepare(users: TwoUsers) -> None:
        users.pool = users.home / "pool"
        users.command("bitfusion", "list_gpus")
        for folder in (users.pool, users.pool / "locks", users.pool / "bells"):
            folder.chmod(0o777)
        plant(users, users.pool)
        users.pool.chmod(0o700)

    return prepare


def still_open(script: str) -> Prepare:
    """BITFUSION_POOL_DIR names a folder of the victim that everybody can write to."""

    def prepare(users: TwoUsers) -> None:
        users.pool = users.home / "pool"
        for folder in (users.pool, users.pool / "locks", users.pool / "bells"):
            folder.mkdir()
            folder.chmod(0o777)
        users.attack(script, users.pool)

    return prepare


def beside_others(mode: int, group: int = 0) -> Prepare:
    """The victim's pool is in a folder where the attacker puts a link in its place whenever there is one."""

    def prepare(users: TwoUsers) -> None:
        parent = users.home / "parent"
        parent.mkdir()
        os.chown(parent, 0, group)
        users.pool = parent / "pool"
        users.command("bitfusion", "list_gpus")
        parent.chmod(mode)
        users.attack('mv "$1" "$1.was"; ln -s "${SECRET%/*}" "$1"', users.pool)

    return prepare


def attackers_own(script: str, pool: str = "pool") -> Prepare:
    """BITFUSION_POOL_DIR names a folder that the attacker has made."""

    def prepare(users: TwoUsers) -> None:
        users.pool = users.attacker / pool
        users.attack(script, users.attacker / "pool")

    return prepare


def variable(name: str, value: str, script: str) -> Prepare:
    """A variable of the victim's environment leads to what the attacker has made."""

    def prepare(users: TwoUsers) -> None:
        users.attack(script)
        # the pool of the user database's home is not for tests
        users.extra["XDG_STATE_HOME"] = str(users.home / ".local" / "state")
        users.extra[name] = str(users.attacker / value)

    return prepare


def planted(script: str) -> Prepare:
    return once_open(lambda users, pool: users.attack(script, pool))


AS_LEDGER = 'rm -f "$1"/ledger.db*; '
ATTACKS: dict[str, Prepare] = {
    # in place of the ledger
    "ledger: link to the secret": planted(AS_LEDGER + 'ln -s "$SECRET" "$1/ledger.db"'),
    "ledger: dangling link": planted(AS_LEDGER + 'ln -s "$MADE" "$1/ledger.db"'),
    "ledger: named pipe": planted(AS_LEDGER + 'mkfifo -m 666 "$1/ledger.db"'),
    "ledger: folder": planted(AS_LEDGER + 'mkdir -m 777 "$1/ledger.db"'),
    "ledger: the attacker's file": planted(AS_LEDGER + 'echo x >"$1/ledger.db"'),
    "ledger: hard link": once_open(lambda users, pool: users.plant_hard_link(pool / "ledger.db")),
    "ledger: socket": once_open(lambda users, pool: users.plant_socket(pool / "ledger.db")),
    # beside it
    "wal: dangling link": planted('ln -s "$MADE" "$1/ledger.db-wal"'),
    "wal: link to the secret": planted('ln -s "$SECRET" "$1/ledger.db-wal"'),
    "wal: hard link": once_open(lambda users, pool: users.plant_hard_link(pool / "ledger.db-wal")),
    "wal: named pipe": planted('mkfifo -m 666 "$1/ledger.db-wal"'),
    "shm: link to the secret": planted('ln -s "$SECRET" "$1/ledger.db-shm"'),
    "shm: named pipe": planted('mkfifo -m 666 "$1/ledger.db-shm"'),
    "journal: link to the secret": planted('ln -s "$SECRET" "$1/ledger.db-journal"'),
    "boot: link to the secret": planted('rm -f "$1/boot"; ln -s "$SECRET" "$1/boot"'),
    "boot: named pipe": planted('rm -f "$1/boot"; mkfifo -m 666 "$1/boot"'),
    # locks and wake-ups
    "locks: named pipe in it": planted('mkfifo -m 666 "$1/locks/0123456789abcdef"'),
    "locks: link to the secret in it": planted('ln -s "$SECRET" "$1/locks/0123456789abcdef"'),
    "locks: hard link in it": once_open(lambda users, pool: users.plant_hard_link(pool / "locks" / "0123")),
    "locks: socket in it": once_open(lambda users, pool: users.plant_socket(pool / "locks" / "0123")),
    "locks: folder in it": planted('mkdir -m 777 "$1/locks/0123456789abcdef"'),
    "locks: link to a folder": planted('mv "$1/locks" "$1/was"; mkdir here; ln -s "$PWD/here" "$1/locks"'),
    "locks: dangling link": planted('mv "$1/locks" "$1/was"; ln -s "$MADE" "$1/locks"'),
    "wake-ups: link to a folder": planted('mv "$1/bells" "$1/was"; mkdir here; ln -s "$PWD/here" "$1/bells"'),
    "wake-ups: link to the secret in it": planted('ln -s "$SECRET" "$1/bells/0123456789abcdef"'),
    # the configuration and its drafts
    "pool.toml: link to the secret": planted('ln -s "$SECRET" "$1/pool.toml"'),
    "pool.toml: dangling link": planted('ln -s "$MADE" "$1/pool.toml"'),
    "pool.toml: named pipe": planted('mkfifo -m 666 "$1/pool.toml"'),
    "pool.toml: folder": planted('mkdir "$1/pool.toml"'),
    "pool.toml: endless": planted('ln -s /dev/zero "$1/pool.toml"'),
    "drafts: links by every number": planted(
        'for n in $(seq 1 400); do ln -s "$SECRET" "$1/pool.toml.$(($$ + n))"; done'
    ),
    # folders
    "folder: in a folder where everybody may rename": beside_others(0o777),
    "folder: in a folder where the attacker's group may rename": beside_others(0o775, ATTACKER),
    "folder: in a sticky folder, where the attacker was first": attackers_own(
        'mkdir -m 777 "${1%/attacker*}/tmp/pool"; ln -s "$SECRET" "${1%/attacker*}/tmp/pool/ledger.db"',
        "../tmp/pool",
    ),
    "folder: in a sticky folder, a link of the attacker": attackers_own(
        'ln -s "${SECRET%/*}" "${1%/attacker*}/tmp/pool"', "../tmp/pool"
    ),
    "folder: writable by everybody": still_open(":"),
    "folder: writable by everybody, link as ledger": still_open('ln -s "$MADE" "$1/ledger.db"'),
    "folder: writable by everybody, pipe as lock": still_open('mkfifo -m 666 "$1/locks/0123"'),
    "folder: the attacker's": attackers_own('mkdir -m 777 "$1"'),
    "folder: the attacker's, link as ledger": attackers_own(
        'mkdir -m 777 "$1"; ln -s "$SECRET" "$1/ledger.db"'
    ),
    "folder: link to one of the victim": attackers_own('ln -s "${SECRET%/*}" "$1"'),
    "folder: dangling link": attackers_own('ln -s "$MADE" "$1"'),
    "folder: in one of the attacker": attackers_own(":", "pool/not/there"),
    "folder: the attacker's pipe": attackers_own('mkfifo -m 666 "$1"'),
    # what else the environment names
    "XDG_STATE_HOME: the attacker's": variable("XDG_STATE_HOME", ".", ":"),
    "XDG_STATE_HOME: with a link": variable("XDG_STATE_HOME", ".", 'ln -s "$MADE" bitfusion-pool'),
    "HOME: the attacker's, with a link": variable("HOME", ".", 'ln -s "$MADE" .bitfusion'),
    "HOME: the attacker's, with a pipe": variable(
        "HOME", ".", "mkdir -m 777 .bitfusion; mkfifo -m 666 .bitfusion/requested_gpus"
    ),
    "HOME: the attacker's, with a list": variable(
        "HOME", ".", 'mkdir -m 777 .bitfusion; echo "$SECRET" >.bitfusion/requested_gpus'
    ),
    "BITFUSION_POOL_CONFIG: link to the secret": variable(
        "BITFUSION_POOL_CONFIG", "pool.toml", 'ln -s "$SECRET" pool.toml'
    ),
    "BITFUSION_POOL_CONFIG: named pipe": variable(
        "BITFUSION_POOL_CONFIG", "pool.toml", "mkfifo -m 666 pool.toml"
    ),
    "BITFUSION_POOL_CONFIG: the attacker's": variable(
        "BITFUSION_POOL_CONFIG", "pool.toml", "echo '[[servers]]' >pool.toml"
    ),
}


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, marks=[pytest.mark.long] * (number % 3 > 0))
        for number, attack in enumerate(ATTACKS)
    ],
)
def test_nothing_outside_the_pool_is_made_changed_or_read_and_nobody_waits(
    users: TwoUsers, attack: str
) -> None:
    ATTACKS[attack](users)
    before = users.outside()
    said = ""
    for words in COMMANDS:
        done = users.command(*words)
        said += done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert "unexpected" not in done.stderr
    assert users.outside() == before
    assert not (users.home / "made").exists()
    assert SECRET not in said


@pytest.mark.parametrize("plant", ['ln -s "$SECRET" "$1"', 'ln -s "$MADE" "$1"', 'mkfifo -m 666 "$1"'])
def test_an_allocation_file_that_the_attacker_has_prepared_is_not_written(
    users: TwoUsers, plant: str
) -> None:
    file = users.attacker / "allocation"
    users.attack(plant, file)
    before = users.outside()
    for words in ("request_gpus", "-n", "1", "-f", str(file)), ("release_gpus", "-f", str(file)):
        done = users.command("bitfusion", *words)
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith(f"Error: allocation file {file} ")
    assert users.outside() == before
    assert not (users.home / "made").exists()
    status = users.command("bitfusion-pool", "status")
    assert "Nobody holds a GPU." in status.stdout


def test_the_attacker_ends_and_changes_nothing_in_the_victims_pool(users: TwoUsers) -> None:
    holder = subprocess.Popen(
        [COMMAND, "run", "-n", "2", "--", "sleep", "600"],
        env=users.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with Ledger(users.environ) as ledger:
            wait_until(lambda: [one for one in ledger.entries() if one.state == "held"])
            (lease,) = ledger.entries()
            folder = ledger.folder
            environ = {"BITFUSION_POOL_DIR": folder}
            for words in (
                ["bitfusion-pool", "status"],
                ["bitfusion-pool", "reap", "--force", lease.entry_id],
                ["bitfusion-pool", "simulate", "--gpus", "1"],
                ["bitfusion-pool", "init", "--force"],
                ["bitfusion", "run", "-n", "1", "--", "true"],
                ["bitfusion", "list_gpus"],
                ["bitfusion", "release_gpus", "-f", *map(str, users.shared.glob("bitfusion*"))],
            ):
                done = users.attackers_command(words, environ)
                assert done.returncode == 1, words
                assert "Traceback" not in done.stderr
            assert ledger.entries() == [lease]
            assert len(ledger.servers[0].devices) == 2
            waiting, lock = ledger.submit(GpuRequest(1), somebody())
            assert waiting.state == "waiting"
            ledger.release(waiting.entry_id)
            lock.close()
        assert holder.poll() is None
    finally:
        holder.terminate()
        holder.wait()
