"""The pool of earlier versions: what is said of it, and that looking at it is safe."""

from __future__ import annotations

import fcntl
import os
import pwd
from pathlib import Path

import pytest

from bitfusion_pool.ledger import old_pool
from bitfusion_pool.ledger.old_pool import find_old_pool
from tests.pool.pool_client import PoolClient

only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """As an earlier version left it."""
    folder = tmp_path / "old"
    for path in (folder, folder / "locks", folder / "bells"):
        path.mkdir()
        path.chmod(0o777)
    (folder / "ledger.db").write_bytes(b"whatever")
    return folder


def said(folder: Path) -> str:
    found = find_old_pool(str(folder))
    assert found is not None
    return found.text()


def test_where_there_is_none_nothing_is_said(tmp_path: Path) -> None:
    assert find_old_pool(str(tmp_path / "none")) is None
    (tmp_path / "file").touch()
    assert find_old_pool(str(tmp_path / "file")) is None
    (tmp_path / "link").symlink_to("/")
    assert find_old_pool(str(tmp_path / "link")) is None


def test_an_old_pool_without_leases_can_be_removed(old: Path) -> None:
    (old / "locks" / "of-the-dead").touch()
    assert said(old) == (
        f"{old} is the pool of an earlier version, which is no longer used. What to do: rm -r {old}"
    )


def test_programs_that_still_hold_gpus_of_it_are_counted(old: Path) -> None:
    held = []
    for number, words in enumerate(("1 program of yours still uses", "2 programs of yours still use")):
        held.append(os.open(old / "locks" / f"lease{number}", os.O_RDWR | os.O_CREAT))
        fcntl.flock(held[-1], fcntl.LOCK_EX)
        assert said(old) == (
            f"{old} is the pool of an earlier version, which is no longer used; {words} it. "
            f"What to do: rm -r {old}, once these programs have ended"
        )
    for fd in held:
        os.close(fd)
    assert "still use" not in said(old)


@only_root
def test_files_of_other_users_are_counted_and_not_opened(old: Path) -> None:
    path = old / "locks" / "theirs"
    path.touch()
    os.utime(path, (1, 1))
    os.chown(path, 54321, 54321)
    os.chown(old, 54321, 54321)
    assert said(old) == (
        f"{old} is the pool of an earlier version, which is no longer used; "
        f"other users have 1 lock file in it. What to do: rm -r {old}, once these programs have ended"
    )


def test_somebody_who_cannot_remove_it_is_told_who_can(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = "root" if os.geteuid() == 0 else f"{pwd.getpwuid(os.geteuid()).pw_name} or root"
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert said(old).endswith(f"What to do: rm -r {old}, as {owner}")


def test_nothing_in_it_keeps_us_waiting_or_leads_us_elsewhere(old: Path, tmp_path: Path) -> None:
    locked = os.open(tmp_path / "elsewhere", os.O_RDWR | os.O_CREAT)
    fcntl.flock(locked, fcntl.LOCK_EX)
    os.mkfifo(old / "locks" / "pipe")
    (old / "locks" / "folder").mkdir()
    (old / "locks" / "link").symlink_to(tmp_path / "elsewhere")
    (old / "locks" / "dangling").symlink_to(tmp_path / "made")
    os.link(tmp_path / "elsewhere", old / "locks" / "hard-link")
    found = find_old_pool(str(old))
    os.close(locked)
    assert found is not None
    assert (found.running, found.others) == (0, 1)
    assert not (tmp_path / "made").exists()


def test_the_number_of_files_looked_at_has_a_bound(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_pool, "_MOST_FILES", 3)
    for number in range(5):
        os.link(old / "ledger.db", old / "locks" / str(number))
    found = find_old_pool(str(old))
    assert found is not None
    assert found.others == 3


def test_a_locks_folder_that_is_a_link_is_not_followed(old: Path, tmp_path: Path) -> None:
    (old / "locks").rename(tmp_path / "locks")
    (tmp_path / "locks" / "lease").touch()
    (old / "locks").symlink_to(tmp_path / "locks")
    assert "lock file" not in said(old)


def test_it_is_told_by_status_and_health(client: PoolClient) -> None:
    status, health = client.admin("status").stdout, client.do("health").stdout
    found = find_old_pool()
    if found is None:
        assert "earlier version" not in status
        assert "[PASS    ] Check pool of earlier versions: none\n" in health
    else:
        assert status.endswith(f"\n{found.text()}\n")
        assert f"[MARGINAL] Check pool of earlier versions: {found.text()}\n" in health
