"""The folder of the sockets: private, short, and gone afterwards."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from bitfusion_kernel.processes import private_folder


def test_it_lies_in_the_runtime_folder_and_is_private() -> None:
    path = private_folder.create(os.environ)
    assert os.path.dirname(path) == os.environ["XDG_RUNTIME_DIR"]
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    Path(path, "kernel-5e.json").touch()
    private_folder.remove(path)
    assert not os.path.exists(path)
    private_folder.remove(path)  # whoever comes second finds nothing to do


def test_every_proxy_gets_its_own() -> None:
    paths = {private_folder.create(os.environ) for _ in range(3)}
    assert len(paths) == 3
    for path in paths:
        private_folder.remove(path)


@pytest.mark.parametrize("runtime", ["", "/no/such/folder", "/tmp/" + "x" * 90, "/tmp/" + "é" * 45])
def test_a_place_that_does_not_serve_is_replaced_by_tmp(runtime: str) -> None:
    path = private_folder.create({"XDG_RUNTIME_DIR": runtime})
    assert os.path.dirname(path) == "/tmp"
    private_folder.remove(path)


def test_a_place_whose_name_is_no_text_is_replaced_by_tmp(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(odd)
    path = private_folder.create({"XDG_RUNTIME_DIR": os.fsdecode(odd)})
    assert os.path.dirname(path) == "/tmp"
    private_folder.remove(path)


def test_where_none_can_be_made_every_place_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(OSError, match=r"^/run/x: No space left on device; /tmp: No space left on device$"):
        private_folder.create({"XDG_RUNTIME_DIR": "/run/x"})
    long = "/tmp/" + "x" * 90
    with pytest.raises(OSError, match=f"^{long} is too long a path for unix sockets; /tmp: No space"):
        private_folder.create({"XDG_RUNTIME_DIR": long})


def test_it_is_restored_where_it_was_or_elsewhere() -> None:
    path = private_folder.create(os.environ)
    assert private_folder.restore(path, os.environ) == path
    os.rmdir(path)
    assert private_folder.restore(path, os.environ) == path
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    os.chmod(path, 0o777)  # anybody may have made it
    other = private_folder.restore(path, os.environ)
    assert os.path.dirname(other) == os.environ["XDG_RUNTIME_DIR"]
    assert other != path
    private_folder.remove(other)
    private_folder.remove(path)
    first = private_folder.restore("", os.environ)  # none could be made before
    assert os.path.dirname(first) == os.environ["XDG_RUNTIME_DIR"]
    private_folder.remove(first)


def test_the_longest_place_that_serves_leaves_room_for_a_socket(tmp_path: Path) -> None:
    path = private_folder.create(os.environ)
    assert len(path) + 1 + private_folder.LONGEST_SOCKET_NAME <= 107
    private_folder.remove(path)


def test_folders_inside_are_not_removed() -> None:
    path = private_folder.create(os.environ)
    inside = Path(path, "inside")
    inside.mkdir()
    private_folder.remove(path)
    assert inside.exists()
    inside.rmdir()
    private_folder.remove(path)
    assert not os.path.exists(path)


def test_programs_that_search_the_path_for_a_kernels_id_find_it_in_the_name_of_the_file() -> None:
    """`re.search("kernel-(.*).json", get_connection_file())`, as experiment trackers have it."""
    path = private_folder.create({"XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]})
    private_folder.remove(path)
    assert "kernel-" not in os.path.basename(path)
