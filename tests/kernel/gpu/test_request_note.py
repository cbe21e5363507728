"""The request that survives a restart: found by the key alone; others' files are never read or written."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.request_note import FOLDER, LONGEST, MOST_NOTES, RequestNote
from tests.support.machine import scaled

REQUEST = GpuRequest(2, 0.5, filters=(("device.name", "Tesla V100"),), servers=("h:1",), timeout=60)
KEY = b"6e1c5b1c-a6a8d9c1f7a54e0fbc3d0ff0"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def note(state: Path, key: bytes = KEY) -> RequestNote:
    return RequestNote(key, {"XDG_STATE_HOME": str(state)})


def files(state: Path) -> list[Path]:
    return sorted((state / FOLDER).iterdir())


def test_who_has_the_same_key_reads_what_was_written(state: Path) -> None:
    assert note(state).read() is None
    note(state).write(GpuRequest(3))
    note(state).write(REQUEST)
    assert note(state).read() == REQUEST
    assert note(state, b"another").read() is None
    note(state).remove()
    assert note(state).read() is None
    assert files(state) == []
    note(state).remove()


def test_the_files_are_the_users_alone_and_do_not_tell_the_key(state: Path) -> None:
    previous = os.umask(0)
    try:
        note(state).write(REQUEST)
    finally:
        os.umask(previous)
    (file,) = files(state)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert KEY.decode() not in file.name + file.read_text()


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.local/state"),
        ({"HOME": "/home/ada", "XDG_STATE_HOME": "relative"}, "/home/ada/.local/state"),
        ({"HOME": "/home/ada", "XDG_STATE_HOME": "/state"}, "/state"),
    ],
)
def test_the_place_is_the_users_state_folder(
    environ: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []

    def lstat(path: str) -> os.stat_result:
        looked_at.append(path)
        raise FileNotFoundError

    monkeypatch.setattr(os, "lstat", lstat)
    assert RequestNote(KEY, environ).read() is None
    monkeypatch.undo()
    assert looked_at == [f"{folder}/{FOLDER}"]


def test_without_a_key_nothing_is_kept(state: Path) -> None:
    with pytest.raises(OSError, match="no key"):
        note(state, b"").write(REQUEST)
    assert note(state, b"").read() is None
    note(state, b"").remove()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"gpus": 0}', '{"what": 1}', '{"gpus": 1}' + " " * LONGEST, "[" * 16000]
)
def test_a_damaged_note_is_none(state: Path, text: str) -> None:
    note(state).write(REQUEST)
    files(state)[0].write_text(text)
    assert note(state).read() is None


def test_a_request_that_is_too_long_is_not_kept(state: Path) -> None:
    with pytest.raises(OSError, match="longer than 16384 bytes"):
        note(state).write(GpuRequest(servers=tuple(f"host-{number}:1" for number in range(2000))))
    assert not state.exists()


def _link(file: Path, outside: Path) -> None:
    outside.write_text('{"gpus": 7}')
    file.symlink_to(outside)


def _fifo(file: Path, _: Path) -> None:
    os.mkfifo(file, 0o600)


def _folder(file: Path, _: Path) -> None:
    file.mkdir()


def _open_to_others(file: Path, _: Path) -> None:
    file.write_text('{"gpus": 7}')
    file.chmod(0o666)


@pytest.mark.parametrize("put", [_link, _fifo, _folder, _open_to_others])
def test_what_is_no_file_of_ours_is_not_read(
    state: Path, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    note(state).write(REQUEST)
    (file,) = files(state)
    file.unlink()
    put(file, tmp_path / "outside")
    assert note(state).read() is None


def test_a_link_in_the_notes_place_is_replaced_and_not_followed(state: Path, tmp_path: Path) -> None:
    note(state).write(REQUEST)
    (file,) = files(state)
    file.unlink()
    _link(file, tmp_path / "outside")
    note(state).write(REQUEST)
    assert (tmp_path / "outside").read_text() == '{"gpus": 7}'
    assert note(state).read() == REQUEST


def test_a_folder_that_is_a_link_is_not_used(state: Path, tmp_path: Path) -> None:
    (state / FOLDER).parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (state / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="belongs to another user"):
        note(state).write(REQUEST)
    assert note(state).read() is None
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_folder_that_was_opened_to_others_is_closed_again_before_anything_is_read(state: Path) -> None:
    note(state).write(REQUEST)
    (state / FOLDER).chmod(0o770)
    assert note(state).read() is None
    note(state).write(GpuRequest(3))
    assert stat.S_IMODE((state / FOLDER).stat().st_mode) == 0o700
    assert note(state).read() == GpuRequest(3)


def test_there_are_never_more_than_so_many_and_the_oldest_go(state: Path) -> None:
    note(state).write(REQUEST)
    (mine,) = files(state)
    for number in range(MOST_NOTES + 20):
        other = mine.with_name(f"{number}.json")
        other.write_text("{}")
        os.utime(other, (number, number))
    note(state).write(REQUEST)
    left = {file.name for file in files(state)}
    assert len(left) == MOST_NOTES
    assert mine.name in left
    assert "20.json" not in left
    assert "21.json" in left


def test_a_disk_that_is_full_leaves_no_draft(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note(state).write(REQUEST)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        note(state).write(GpuRequest(3))
    assert len(files(state)) == 1
    assert note(state).read() == REQUEST


AS_ANOTHER_USER = """
import os, sys
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.request_note import RequestNote
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
note = RequestNote(sys.argv[1].encode(), {"XDG_STATE_HOME": sys.argv[2]})
print(note.read())
try:
    note.write(GpuRequest(7))
except OSError as error:
    print(error.strerror)
note.remove()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_reads_writes_and_removes_nothing(state: Path, tmp_path: Path) -> None:
    note(state).write(REQUEST)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, KEY.decode(), str(state)],
        capture_output=True,
        text=True,
        timeout=scaled(20),
        check=True,
    )
    assert done.stdout.splitlines() == ["None", "the folder belongs to another user"]
    assert note(state).read() == REQUEST


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_root_writes_nothing_where_another_users_links_lead(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".local").symlink_to(tmp_path / "etc")
    (tmp_path / "etc").mkdir()
    os.chown(home, 65534, 65534)
    with pytest.raises(OSError, match="belongs to another user"):
        RequestNote(KEY, {"HOME": str(home)}).write(REQUEST)
    assert not list((tmp_path / "etc").iterdir())


def test_a_writer_that_is_killed_leaves_the_note_as_it_was(state: Path) -> None:
    note(state).write(REQUEST)
    code = (
        "import os, sys\n"
        "from bitfusion_client.request.gpu_request import GpuRequest\n"
        "from bitfusion_kernel.gpu import request_note\n"
        "request_note.os.replace = lambda *_: os.kill(os.getpid(), 9)\n"
        "request_note.RequestNote(sys.argv[1].encode(), {'XDG_STATE_HOME': sys.argv[2]}).write(GpuRequest(9))"
    )
    done = subprocess.run([sys.executable, "-c", code, KEY.decode(), str(state)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert note(state).read() == REQUEST
