"""Root runs `bitfusion-pool` on what another user has prepared: refused in words, and nothing is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.pool.two_users import SECRET, TwoUsers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")

PREPARED = {
    "a link to a secret": 'ln -s "$SECRET" thing',
    "a link to an endless file": "ln -s /dev/zero thing",
    "a named pipe": "mkfifo thing",
    "a huge file": "truncate -s 100G thing",
    "a folder of theirs": "mkdir thing; mkfifo thing/pool.toml thing/ledger.db thing/service.lock",
    "a link to root's home": 'ln -s "${SECRET%/*}" thing',
}
COMMANDS = (
    ("BITFUSION_POOL", "status"),
    ("", "--dir", "THING", "status"),
    ("", "--dir", "THING", "serve", "--socket", "SOCKET"),
    ("", "serve", "--settings", "THING"),
)


@pytest.fixture
def users() -> Iterator[TwoUsers]:
    users = TwoUsers()
    yield users
    users.remove()


@pytest.mark.parametrize("what", PREPARED)
def test_what_another_user_prepared_is_refused_in_words(users: TwoUsers, what: str) -> None:
    users.attack(PREPARED[what])
    thing = str(users.attacker / "thing")
    before = users.outside()
    for variable, *words in COMMANDS:
        users.extra = {variable: thing} if variable else {}
        # the pool of the user database's home is not for tests
        users.extra["XDG_STATE_HOME"] = str(users.home / ".local" / "state")
        there = {"THING": thing, "SOCKET": str(users.home / "socket")}
        done = users.command("bitfusion-pool", *(there.get(word, word) for word in words))
        said = done.stdout + done.stderr
        print(f"{what:25} {' '.join((variable, *words)):45} {done.stderr[-150:]!r}")
        assert done.returncode != 0, (words, said)
        assert done.stderr.startswith("Error: "), (words, said)
        assert "Traceback" not in said
        assert SECRET not in said
    assert users.outside() == before
    # a configuration is copied from anybody's file, which is read for that; not a byte of it is shown or kept
    users.extra = {"XDG_STATE_HOME": str(users.home / ".local" / "state")}
    done = users.command("bitfusion-pool", "init", "--config", thing)
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: pool configuration {thing} is wrong: ")
    assert SECRET not in done.stderr
    assert not list(users.home.rglob("pool.toml"))
