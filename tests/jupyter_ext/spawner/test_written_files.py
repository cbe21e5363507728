"""Files are written all or none, and never over what somebody edited."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jupyter_ext.spawner.written_files import EditedFile, with_mark, without_mark, write_files


def test_a_file_is_written_with_its_checksum_and_found_unchanged_again(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "a.yaml")
    assert write_files({path: "a: 1\n"}) == [path]
    text = Path(path).read_text()
    assert text.startswith(
        "a: 1\n# kubeflow-bitfusion: written by the command, unchanged while this is its checksum: "
    )
    before = os.stat(path)
    assert write_files({path: "a: 1\n"}) == []
    assert os.stat(path) == before


def test_what_the_command_wrote_itself_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "a.yaml")
    write_files({path: "a: 1\n"})
    os.chmod(path, 0o640)
    assert write_files({path: "a: 2\n"}) == [path]
    assert without_mark(Path(path).read_text()) == "a: 2\n"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.yaml"]


@pytest.mark.parametrize("edit", ["by hand", "somebody else's"])
def test_an_edited_file_stays_and_nothing_else_is_written(tmp_path: Path, edit: str) -> None:
    first, second = str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml")
    write_files({first: "a: 1\n"})
    path = Path(first)
    path.write_text(path.read_text().replace("a: 1", "a: 8") if edit == "by hand" else "a: 1\n")
    content = path.read_bytes()
    with pytest.raises(EditedFile) as caught:
        write_files({second: "b: 1\n", first: "a: 2\n"})
    assert caught.value.user_message == (
        f"{first} was not written by this command, or has been edited since: nothing was written "
        "(--force replaces it)"
    )
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["a.yaml"]
    assert write_files({second: "b: 1\n", first: "a: 2\n"}, force=True) == [second, first]
    assert without_mark(path.read_text()) == "a: 2\n"


def test_a_write_that_fails_leaves_no_part_behind(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").mkdir()
    with pytest.raises(OSError, match=r"b\.yaml"):
        write_files({str(tmp_path / "a.yaml"): "a", str(tmp_path / "b.yaml"): "b"}, force=True)
    (tmp_path / "b").write_text("no folder")
    with pytest.raises(OSError, match="b"):
        write_files({str(tmp_path / "a.yaml"): "a", str(tmp_path / "b" / "c.yaml"): "b"})
    assert sorted(os.listdir(tmp_path)) == ["b", "b.yaml"]


def test_a_folder_that_takes_no_files_is_told_by_the_name_that_was_given() -> None:
    with pytest.raises(OSError, match=r"'/proc/a\.yaml'$"):
        write_files({"/proc/a.yaml": "a: 1\n"})


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    write_files({str(tmp_path / "link.yaml"): "a: 1\n"})
    assert (tmp_path / "link.yaml").is_symlink()
    assert (tmp_path / "real.yaml").is_file()


@pytest.mark.parametrize("text", ["a: 1\n", "a: 1", "a: 1\r\nb: 2\r\n", "\n", "a\n\n\n"])
def test_the_mark_can_be_taken_off_again(text: str) -> None:
    marked = with_mark(text)
    assert without_mark(marked) == (text if text.endswith("\n") else text + "\n")
    assert without_mark(text) == text
    assert marked.count("\n") - marked.count("\r\n") == (0 if "\r" in text else marked.count("\n"))
