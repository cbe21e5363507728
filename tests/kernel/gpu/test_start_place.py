"""A start that comes late: its folder made anew, renamed or gone; its environment gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.start_place import EnvironmentGone, FolderGone, enter

HALF = GpuRequest(partial=0.5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The proxy's own, in which it was started."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "work"
    made.mkdir()
    os.chdir(made)
    yield made
    os.chdir("/")


def test_the_folder_as_it_was(folder: Path) -> None:
    assert enter(str(folder), HALF, []) == str(folder) == os.getcwd()


def test_one_that_was_made_anew_is_entered(folder: Path) -> None:
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    assert enter(str(folder), HALF, []) == str(folder) == os.getcwd()


def test_one_that_was_renamed_is_stayed_in(folder: Path) -> None:
    folder.rename(folder.with_name("new"))
    assert enter(str(folder), HALF, []) == str(folder.with_name("new")) == os.getcwd()


def test_one_that_is_gone_is_named(folder: Path) -> None:
    folder.rmdir()
    with pytest.raises(FolderGone) as error:
        enter(str(folder), HALF, [])
    assert error.value.user_message.splitlines()[:3] == [
        "The folder in which this kernel starts is gone.",
        "Asked for: 1 GPU × 50 %",
        f"Answer: {folder}: No such file or directory",
    ]
    folder.mkdir()
    assert enter(str(folder), HALF, []) == os.getcwd()


def test_one_that_was_gone_from_the_beginning_is_not_looked_for(folder: Path) -> None:
    folder.rmdir()
    assert enter("", HALF, []) == ""


def test_a_file_that_the_start_takes_is_named_when_it_is_gone(folder: Path) -> None:
    python = folder / "python"
    with pytest.raises(EnvironmentGone, match=f"{python} no longer exists"):
        enter(str(folder), HALF, [str(python)])
    python.touch()
    enter(str(folder), HALF, [str(python)])
