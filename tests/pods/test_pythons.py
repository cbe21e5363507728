"""Of which version a command line's Pythons are, told by their files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bitfusion_pods.pythons import paths, versions


def python(folder: Path, name: str = "python3", target: str = "", libraries: tuple[str, ...] = ()) -> Path:
    """An environment's Python, or a link to another's."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for library in libraries:
        (folder / "lib" / library).mkdir(parents=True)
    made = folder / "bin" / name
    made.symlink_to(target) if target else made.touch(0o755)
    return made


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"name": "python3.12"}, "3.12"),
        ({"libraries": ("python3.11",)}, "3.11"),
        ({"libraries": ("python3", "python3.11")}, "3.11"),  # Debian has both
        ({"libraries": ("python3.11", "python3.12")}, ""),  # which of them, nobody tells
        ({"libraries": ("python3.13t",)}, ""),
        ({}, ""),
    ],
)
def test_a_version_is_told_by_the_name_or_by_the_library(
    tmp_path: Path, files: dict[str, Any], version: str
) -> None:
    path = str(python(tmp_path, **files))
    assert versions([path, "-m", "ipykernel"], {}) == ({path: version} if version else {})


def test_links_are_followed_as_those_of_an_environment(tmp_path: Path) -> None:
    base = python(tmp_path / "base", "python3.12")
    inner = python(tmp_path / "venv", target=str(base), libraries=("python3.9",))
    assert versions([str(inner)], {}) == {str(inner): "3.12"}


def test_a_name_is_looked_for_on_the_path(tmp_path: Path) -> None:
    found = python(tmp_path / "b", "python3", libraries=("python3.12",))
    given = {"PATH": f":relative:{tmp_path}/a/bin:{tmp_path}/b/bin"}
    assert paths(["sh", "python3", "/no/python3", "x.py"], given) == {"python3": str(found)}
    assert versions(["python3"], given) == {"python3": "3.12"}


def test_this_one() -> None:
    assert versions([sys.executable], {}) == {sys.executable: f"3.{sys.version_info[1]}"}
