"""The doctor on this Python environment: a folder for sockets, and packages that are compiled or not."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bitfusion_kernel.install.check_environment import (
    PACKAGES,
    check_bytecode,
    check_pidfds,
    check_private_folder,
)
from bitfusion_kernel.install.finding import FAIL, PASS, WARN


def test_no_private_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(environ: object) -> str:
        raise OSError("/x is too long a path for unix sockets")

    monkeypatch.setattr("bitfusion_kernel.processes.private_folder.create", create)
    finding = check_private_folder()
    assert finding.verdict == FAIL
    assert "XDG_RUNTIME_DIR" in finding.next_step


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two packages that can be imported and were never compiled."""
    names = ("first_of_two", "second of two".replace(" ", "_"))
    folder = tmp_path / "a site"
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # looking must not compile
    return names


def test_packages_that_will_be_compiled_when_they_are_used_are_fine(packages: tuple[str, str]) -> None:
    assert check_bytecode(packages).verdict == PASS


def test_without_bytecode_and_with_the_variable_doing_what_the_doctor_says_helps(
    packages: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    finding = check_bytecode(packages)
    assert finding.verdict == WARN
    assert finding.found.startswith(
        "first_of_two, second_of_two have none and PYTHONDONTWRITEBYTECODE is set"
    )
    _, command, _ = finding.next_step.split("`")
    subprocess.run(shlex.split(command), check=True)
    assert check_bytecode(packages).verdict == PASS


def test_bytecode_of_a_source_that_has_changed_does_not_count(
    packages: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "a site" / packages[0] / "__init__.py"
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(first.parent.parent)], check=True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert check_bytecode(packages).verdict == PASS
    os.utime(first, (1, 1))
    assert check_bytecode(packages).found.startswith("first_of_two have none")


def test_folders_that_are_not_writable(packages: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    finding = check_bytecode(packages)
    assert finding.verdict == WARN
    assert "their folders are not writable" in finding.found
    assert finding.next_step.endswith("as the owner of the folders")


def test_a_damaged_compiled_file_does_not_count(
    packages: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    folder = tmp_path / "a site"
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    for compiled in folder.rglob("*.pyc"):
        compiled.write_bytes(compiled.read_bytes()[:7])
    assert check_bytecode(packages).verdict == WARN


def test_site_packages_is_compiled_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))  # an empty folder: nothing is compiled
    finding = check_bytecode(PACKAGES)
    assert finding.found.startswith(", ".join(PACKAGES))
    _, command, _ = finding.next_step.split("`")
    ours = [os.path.dirname(sys.modules["bitfusion_kernel"].__file__ or "")]
    folders = shlex.split(command)[4:]
    assert ours[0] in folders
    assert sum(os.path.basename(folder) == "site-packages" for folder in folders) == 1
    assert not any("ipykernel" in folder for folder in folders)


def _refused(pid: int) -> int:
    raise OSError(38, "Function not implemented")


def test_a_python_without_pidfds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_pidfds().verdict == PASS
    monkeypatch.setattr(os, "pidfd_open", _refused)
    assert check_pidfds().found.startswith("this Linux (before 5.3) or sandbox refuses pidfds: processes are")
    monkeypatch.delattr(os, "pidfd_open")
    assert check_pidfds().lines() == [
        "[WARN] watching processes: this Python was built without os.pidfd_open: processes are looked at up "
        "to 50 times a second, and the end of Jupyter is seen up to 1 s late",
        "       nothing breaks; a newer build of the same Python has it",
    ]
