"""Which paths and files are this user's own, whoever else the machine has."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_pool import own_files
from bitfusion_pool.own_files import NotOurs, open_own, read_text, trusted_path, write_own

OTHER = 54321
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


def folder(path: Path, mode: int = 0o755, owner: int = -1, group: int = -1) -> Path:
    path.mkdir()
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def test_a_path_may_lead_through_links_of_ones_own(tmp_path: Path) -> None:
    place = folder(tmp_path / "disk")
    (tmp_path / "home").symlink_to("disk")
    (place / "state").symlink_to(f"{tmp_path}/./disk/../disk")
    assert trusted_path(f"{tmp_path}/home/state/pool/locks") == f"{place}/pool/locks"
    assert trusted_path("/") == "/"


def test_a_path_that_leads_in_a_circle_is_no_path(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        trusted_path(f"{tmp_path}/a/pool")


@only_root
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: folder(path, owner=OTHER), f"belongs to user {OTHER}"),
        (lambda path: folder(path, 0o777), "can be changed by others (mode 0777)"),
        (lambda path: folder(path, 0o775, group=OTHER), "can be changed by others (mode 0775)"),
        (lambda path: folder(path, 0o1777, owner=OTHER), f"belongs to user {OTHER}"),
    ],
    ids=["another user's", "writable by everybody", "writable by a group", "another user's, sticky"],
)
def test_a_folder_in_which_others_decide_is_not_on_the_way(
    tmp_path: Path, make: Callable[[Path], Path], why: str
) -> None:
    theirs = make(tmp_path / "theirs")
    (theirs / "below").mkdir()
    (tmp_path / "link").symlink_to("theirs/below")
    for path in (theirs / "pool", theirs / "below" / "pool", tmp_path / "link" / "pool"):
        with pytest.raises(NotOurs) as caught:
            trusted_path(str(path))
        assert caught.value.strerror == f"{theirs} {why}"


@only_root
def test_a_sticky_folder_protects_what_is_ones_own_only(tmp_path: Path) -> None:
    shared = folder(tmp_path / "shared", 0o1777)
    folder(shared / "mine")
    folder(shared / "theirs", owner=OTHER)
    (shared / "link").symlink_to(tmp_path)
    os.lchown(shared / "link", OTHER, OTHER)
    assert trusted_path(f"{shared}/mine/pool") == f"{shared}/mine/pool"
    assert trusted_path(f"{shared}/new/pool") == f"{shared}/new/pool"
    for name in ("theirs", "link"):
        with pytest.raises(NotOurs):
            trusted_path(f"{shared}/{name}/pool")


@only_root
@pytest.mark.parametrize(
    ("uid", "group", "is_trusted"), [(0, 0, True), (7, 8, True), (7, 9, True), (7, 0, False)]
)
def test_a_home_may_be_writable_for_ones_own_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, group: int, is_trusted: bool
) -> None:
    # as in Jupyter's images and in volumes with an fsGroup
    home = folder(tmp_path / "home", 0o2775, group=group)
    for name, value in {"geteuid": uid, "getegid": 8, "getgroups": [9]}.items():
        monkeypatch.setattr(os, name, lambda value=value: value)
    if is_trusted:
        assert trusted_path(f"{home}/pool") == f"{home}/pool"
    else:
        with pytest.raises(NotOurs, match="can be changed by others"):
            trusted_path(f"{home}/pool")


@only_root
def test_nobody_may_be_anybody_only_where_users_have_other_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder(tmp_path / "home", owner=65534)
    uid_map = "0 100000 65536"  # a container with users of its own
    monkeypatch.setattr(own_files, "open", lambda *_, **__: io.StringIO(uid_map), raising=False)
    assert trusted_path(f"{home}/pool") == f"{home}/pool"
    uid_map = "0 0 4294967295"
    with pytest.raises(NotOurs, match="belongs to"):
        trusted_path(f"{home}/pool")


def test_a_file_is_replaced_as_a_whole_whatever_was_in_its_place(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    place = tmp_path / "place"
    place.symlink_to(victim)
    write_own(str(place), "new")
    assert (victim.read_text(), place.read_text(), place.is_symlink()) == ("kept", "new", False)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_own(str(tmp_path / "folder"), "new")
    assert sorted(os.listdir(tmp_path)) == ["folder", "place", "victim"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "is a named pipe, not a file of yours"),
        (os.mkdir, "is a folder, not a file of yours"),
        (lambda path: os.symlink("victim", path), "is a symbolic link, not a file of yours"),
        (lambda path: os.link(f"{os.path.dirname(path)}/victim", path), "has further names (hard links)"),
    ],
)
def test_something_else_than_a_file_is_not_opened(
    tmp_path: Path, make: Callable[[str], None], why: str
) -> None:
    (tmp_path / "victim").write_text("kept")
    path = f"{tmp_path}/place"
    make(path)
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(NotOurs) as caught:
            os.close(open_own(path, flags))
        assert caught.value.strerror == f"{path} {why}"


@only_root
def test_a_file_of_another_user_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "place"
    path.write_text("theirs")
    os.chown(path, OTHER, OTHER)
    with pytest.raises(NotOurs, match=f"belongs to user {OTHER}$"):
        open_own(str(path), os.O_RDONLY)


def test_reading_has_a_bound_and_waits_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("12345")
    assert read_text(str(path), 5) == "12345"
    with pytest.raises(OSError, match="it has more than 4 characters"):
        read_text(str(path), 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is a named pipe"):
        read_text(str(tmp_path / "pipe"), 4)
    with pytest.raises(OSError, match="it is a device"):
        read_text("/dev/zero", 4)
