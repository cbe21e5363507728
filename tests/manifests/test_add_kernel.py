"""What add_kernel.py decides, which runs in a notebook image's own Python; a build is a long test."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "manifests" / "images" / "notebook" / "add_kernel.py"


@pytest.fixture(scope="module")
def add_kernel() -> ModuleType:
    spec = importlib.util.spec_from_file_location("add_kernel", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_python_that_is_too_old_can_read_it() -> None:
    tree = ast.parse(FILE.read_text(), feature_version=(3, 7))
    imported = {
        name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names
    }  # at the top, where all Pythons have it
    assert imported == {"os", "re", "subprocess", "sys", "sysconfig", "tempfile"}


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 11, 6), (3, 12, 13), (3, 15, 99)])
def test_a_python_that_fits(add_kernel: ModuleType, version: tuple[int, ...]) -> None:
    assert add_kernel.unfit(version, "python3") == ""


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 8, 10), (3, 9, 20)])
def test_another_is_told_in_one_line_with_what_to_do(
    add_kernel: ModuleType, version: tuple[int, ...]
) -> None:
    told = add_kernel.unfit(version, "/opt/conda/bin/python3")
    assert told.startswith(
        "The Bitfusion kernel needs Python 3.10 or newer, and this image's /opt/conda/bin/python3 is "
        + ".".join(map(str, version))
        + ": name another image, --build-arg NOTEBOOK_IMAGE=..."
    )
    assert "\n" not in told


def test_packages_that_would_go_elsewhere_are_told(add_kernel: ModuleType, tmp_path: Path) -> None:
    assert add_kernel.not_writable(str(tmp_path)) == ""
    missing = str(tmp_path / "missing")
    assert add_kernel.not_writable(missing) == (
        f"User {os.getuid()} of this image may not write to {missing}: build on an image whose USER may, as "
        "Kubeflow's do, or put a USER who may before the first RUN and the image's own after the last."
    )


def test_the_lock_is_read_by_package(add_kernel: ModuleType) -> None:
    text = (
        "# x\na_b.C==1 ; python_version < '3.11' \\\n    --hash=sha256:1\na-b-c==2 \\\n    --hash=sha256:2\n"
    )
    assert add_kernel.lock_entries(text) == {
        "a-b-c": [
            "a_b.C==1 ; python_version < '3.11' \\\n    --hash=sha256:1\n",
            "a-b-c==2 \\\n    --hash=sha256:2\n",
        ]
    }
    entries = add_kernel.lock_entries((ROOT / "requirements" / "kernel.txt").read_text())
    assert {"ipykernel", "pyzmq", "jupyter-client", "tornado"} <= set(entries)
    assert "".join(line for each in entries.values() for line in each).count("\n") == (
        (ROOT / "requirements" / "kernel.txt").read_text().count("\n") - 1  # its head
    )


def test_what_is_missing_is_found_through_what_is_there(
    add_kernel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = {
        "top": ("1", ["middle>=2", "absent", "other; extra == 'x'", "old; python_version < '3'"]),
        "middle": ("2.1", ["low<3", "Top"]),
        "low": ("3", []),
    }
    for name, (version, needs) in packages.items():
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Requires-Dist: {need}" for need in needs]
        (folder / "METADATA").write_text(
            "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
        )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert add_kernel.missing("top") == ["absent", "low"]


def test_a_package_that_the_lock_has_not_ends_it(add_kernel: ModuleType) -> None:
    with pytest.raises(SystemExit) as told:
        add_kernel.install_locked(["a", "b"], {"b": ["b==1"]})
    assert told.value.code == "kernel.txt has no good a: run `make lock` in the project's folder."


def test_what_pip_left_of_a_package_is_none(
    add_kernel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "~umpy-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert add_kernel.versions()["pytest"]


def test_changes_are_told_one_a_line(add_kernel: ModuleType) -> None:
    before, after = {"a": "1", "b": "1"}, {"a": "1", "b": "2", "c": "3"}
    assert add_kernel.changes(before, after) == ["b 1 -> 2", "c 3"]
