"""`tools/environment.py`, which `make` calls with any Python it finds."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tools import environment

TOOL = Path(environment.__file__)


def test_a_missing_python_is_told_by_its_own_status(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, TOOL, "packages", "--python", "3.99", "--if-found"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 3
    assert "Python 3.99 is not on this machine" in result.stdout


def test_a_python_that_was_asked_for_must_be_there() -> None:
    command = [sys.executable, TOOL, "packages", "--python", "3.99"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "make: Python 3.99 was not found; name it: PYTHON399=/path/to/python3\n"


def test_the_running_python_is_found_by_its_version() -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = environment.find_python(version)
    assert found
    assert environment.version_of(found) == version


def test_a_file_that_is_no_python_has_no_version(tmp_path: Path) -> None:
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    assert environment.version_of(str(shim)) is None
    assert environment.version_of(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(("present", "asked", "enough"), [("test", "demo", True), ("demo", "test", False)])
def test_the_tests_environment_serves_every_purpose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: str, asked: str, enough: bool
) -> None:
    content = Path(environment.lock_file(present)).read_bytes()
    (tmp_path / f".has-{present}").write_text(hashlib.sha256(content).hexdigest())
    project = (Path(environment.ROOT) / "pyproject.toml").read_bytes()
    (tmp_path / ".has-this-project").write_text(hashlib.sha256(project).hexdigest())
    calls = []
    monkeypatch.setattr(environment, "pip", lambda *arguments: calls.append(arguments))
    environment.install("python", str(tmp_path), asked)
    assert (not calls) == enough


def test_an_older_lock_is_no_longer_enough(tmp_path: Path) -> None:
    (tmp_path / ".has-demo").write_text("of another lock")
    assert not environment.has(str(tmp_path), "demo")


def test_a_log_shows_few_lines_of_pips_many(capsys: pytest.CaptureFixture[str]) -> None:
    progress = environment.Progress(41, "demo")
    progress.see("Ignoring tomli: markers 'python_version < \"3.11\"' don't match your environment")
    for number in range(40):
        progress.see(f"Collecting package{number}==1.0 (from -r requirements/demo.txt (line 1))")
        progress.see(f"  Downloading package{number}-1.0-py3-none-any.whl (12 kB)")
    progress.see("  Downloading tensorflow_cpu-2.21.0-cp311-cp311-linux.whl (273.8 MB)")
    progress.see("Installing collected packages: a, b")
    progress.end()
    assert capsys.readouterr().out.splitlines() == [
        "· fetching the packages for demo",
        "   20/40  package19",
        "   40/40  package39",
        "   40/40  tensorflow_cpu, 273.8 MB",
        "   40/40  unpacking 40 packages",
    ]


def test_what_pip_said_last_is_told_when_it_fails() -> None:
    with pytest.raises(environment.Trouble, match=r"pip install failed:\n(.*\n)*.*nothing-of-this-name"):
        environment.pip(sys.executable, ["install", "--no-index", "nothing-of-this-name"], None)
