"""`tools/environment.py`, which `make` calls with any Python that the machine has."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import environment

TOOL = environment.__file__


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project in place of this one; nothing is installed from it."""
    root = tmp_path / "project"
    (root / "requirements").mkdir(parents=True)
    (root / "requirements" / "lock.txt").write_text("a==1\n")
    (root / "requirements" / "uv.txt").write_text("uv==1\n")
    (root / "requirements" / "left-out.in").write_text("")
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "package").mkdir()
    (root / "package" / "__init__.py").write_text("")
    (root / "package" / "module.py").write_text("x = 1\n")
    monkeypatch.setattr(environment, "ROOT", str(root))
    return root


@pytest.fixture
def installed(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The arguments of every call of `uv pip install`, which are not carried out."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(environment, "uv", lambda python, *arguments: calls.append(arguments))
    return calls


@pytest.fixture
def folder(tmp_path: Path) -> str:
    path = tmp_path / "venv"
    path.mkdir()
    return str(path)


def fake_python(path: Path, *, venv: str = "exit 0", pip: str = "exit 0") -> str:
    """A program that says it is Python 3.11 and does these shell commands for `-m venv` and `-m pip`."""
    path.write_text(
        f'#!/bin/sh\ncase "$*" in\n"-m venv"*) {venv};;\n"-m pip"*) {pip};;\n*) echo 3.11;;\nesac\n'
    )
    path.chmod(0o755)
    return str(path)


def test_a_missing_python_is_told_by_its_own_status() -> None:
    command = [sys.executable, TOOL, "packages", "--python", "3.99", "--if-found"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 3
    assert result.stdout.startswith("· Python 3.99 was not found")


def test_a_python_that_was_asked_for_must_be_there() -> None:
    command = [sys.executable, TOOL, "packages", "--python", "3.99"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "make: Python 3.99 was not found; name it: PYTHON399=/path/to/python3\n"


@pytest.mark.parametrize(
    ("purpose", "running", "told"),
    [
        ("demo", (3, 14), "3.10 to 3.13 is needed (TensorFlow has no wheel for a newer one), /own is 3.14"),
        ("packages", (3, 15), "3.10 to 3.14 is needed (orjson has no wheel for a newer one), /own is 3.15"),
        ("any-python", (3, 15), ""),
        ("lock", (3, 9), "3.10 to 3.15 is needed, /own is 3.9"),
    ],
)
def test_a_python_must_have_wheels_of_what_a_purpose_needs(
    monkeypatch: pytest.MonkeyPatch, purpose: str, running: tuple[int, int], told: str
) -> None:
    found = {"3.12": "/python3.12"}
    monkeypatch.setattr(environment, "find_python", found.get)
    monkeypatch.setattr(environment, "sys", SimpleNamespace(version_info=running, executable="/own"))
    assert environment.choose_python(purpose) == ("/python3.12" if told else "/own")
    found.clear()
    if told:
        words = f"Python {told}; name another one: make PYTHON=/path/to/python3"
        with pytest.raises(environment.EnvironmentFailure, match=f"^{re.escape(words)}$"):
            environment.choose_python(purpose)


def test_debians_python_is_taken_where_the_machine_lacks_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (0, "/cache/python3.99")
    monkeypatch.setattr(environment, "call", lambda command, cwd: said)
    assert environment.choose_python("packages", "3.99", debian=True) == "/cache/python3.99"
    said = (1, "no Debian packages: apt-get is missing")
    with pytest.raises(environment.PythonMissing, match=r"^Python 3\.99 is not on this machine.* apt-get"):
        environment.choose_python("packages", "3.99", debian=True)


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


def test_a_python_without_venv_says_which_package_has_it(project: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python3", venv="echo ensurepip is not available; exit 1")
    with pytest.raises(environment.EnvironmentFailure, match=r"apt-get install python3-venv.*\n.*ensurepip"):
        environment.create(str(tmp_path / "venv"), python)
    assert not (tmp_path / "venv").exists()


def test_the_last_words_of_pip_are_told_where_it_cannot_install_uv(project: Path, tmp_path: Path) -> None:
    python = fake_python(
        tmp_path / "python3",
        venv='mkdir -p "$3/bin"; cp "$0" "$3/bin/python"',
        pip="echo No matching distribution found for uv; exit 1",
    )
    with pytest.raises(environment.EnvironmentFailure, match=r"pip cannot install uv.*\n.*No matching"):
        environment.create(str(tmp_path / "venv"), python)


def test_an_environment_that_runs_make_may_be_made_anew() -> None:
    found = environment.choose_python("any-python")
    assert os.path.samefile(found, sys.executable)
    assert not Path(found).is_relative_to(sys.prefix) or sys.prefix == sys.base_prefix


def test_an_environment_is_created_once_for_each_interpreter_and_uv(project: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    python = fake_python(
        tmp_path / "python3", venv=f'echo >> {made}; mkdir -p "$3/bin"; cp "$0" "$3/bin/python"'
    )
    inside = environment.create(str(tmp_path / "venv"), python)
    assert inside == environment.create(str(tmp_path / "venv"), python)
    assert made.read_text() == "\n"
    (project / "requirements" / "uv.txt").write_text("uv==2\n")
    environment.create(str(tmp_path / "venv"), python)
    assert made.read_text() == "\n\n"
    (project / "requirements" / "left-out.in").write_text("package ; python_version < '3'\n")
    environment.create(str(tmp_path / "venv"), python)
    assert made.read_text() == "\n\n\n", "uv would leave it there"


def test_a_folder_that_is_no_environment_is_not_removed(project: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("mine")
    with pytest.raises(environment.EnvironmentFailure, match=f"{home} is no virtual environment"):
        environment.create(str(home), fake_python(tmp_path / "python"))
    assert (home / "thesis.tex").read_text() == "mine"
    (home / "pyvenv.cfg").write_text("")
    environment.create(
        str(home), fake_python(tmp_path / "python", venv='mkdir -p "$3/bin"; cp "$0" "$3/bin/python"')
    )
    assert not (home / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("raised", "status"), [(OSError(28, "No space left on device"), 1), (KeyboardInterrupt, 130)]
)
def test_a_full_disk_and_an_interrupt_are_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    raised: BaseException | type[BaseException],
    status: int,
) -> None:
    def fails(*_: object) -> str:
        raise raised

    monkeypatch.setattr(environment, "create", fails)
    monkeypatch.setattr(sys, "argv", ["environment.py", "lock"])
    assert environment.main() == status
    assert capsys.readouterr().err == ("make: [Errno 28] No space left on device\n" if status == 1 else "")


@pytest.mark.parametrize(("present", "asked", "enough"), [("test", "demo", True), ("demo", "test", False)])
def test_the_tests_environment_serves_every_purpose(
    installed: list[tuple[str, ...]], folder: str, present: str, asked: str, enough: bool
) -> None:
    environment.install(sys.executable, folder, present)
    assert len(installed) == 2, "the packages, then this project"
    environment.install(sys.executable, folder, asked)
    assert (len(installed) == 2) == enough


@pytest.mark.parametrize("purpose", ["cluster", "lock"])
def test_the_environment_of_a_cluster_or_of_the_lock_has_neither_this_project_nor_what_it_needs(
    installed: list[tuple[str, ...]], folder: str, purpose: str
) -> None:
    environment.install(sys.executable, folder, purpose)
    (packages,) = installed
    assert f"--group={purpose}" in packages
    assert {"--require-hashes", "--constraint=requirements/lock.txt"} <= set(packages)
    assert not [each for each in packages if each.startswith(("--requirement", "--extra", "--all-extras"))]
    environment.install(sys.executable, folder, "packages")
    assert len(installed) == 3, "it serves no other purpose"


def test_what_other_projects_tests_need_has_a_lock_of_its_own(
    installed: list[tuple[str, ...]], folder: str, project: Path
) -> None:
    (project / "requirements" / "jupyter-suites.txt").write_text("b==1\n")
    environment.install(sys.executable, folder, "jupyter-suites")
    packages = installed[0]
    assert "--constraint=requirements/jupyter-suites.txt" in packages
    assert "--constraint=requirements/lock.txt" not in packages


@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements/lock.txt"])
def test_another_lock_or_pyproject_is_installed_anew(
    installed: list[tuple[str, ...]], folder: str, project: Path, changed: str
) -> None:
    environment.install(sys.executable, folder, "demo")
    (project / changed).write_text("# changed\n")
    environment.install(sys.executable, folder, "demo")
    assert len(installed) == 4


def test_every_package_has_a_hash_and_is_compiled(installed: list[tuple[str, ...]], folder: str) -> None:
    environment.install(sys.executable, folder, "test")
    packages, project = installed
    assert {"--require-hashes", "--compile-bytecode", "--constraint=requirements/lock.txt"} <= set(packages)
    assert "--no-deps" in project


def test_what_makes_every_import_of_jsonschema_slow_is_not_installed() -> None:
    import jsonschema

    assert jsonschema.FormatChecker().conforms("2026-11-26", "date")
    assert importlib.util.find_spec("rfc3987_syntax") is None


def test_a_failed_installation_is_tried_again(
    project: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: str) -> None:
        raise environment.EnvironmentFailure("no network")

    monkeypatch.setattr(environment, "uv", fail)
    for _ in range(2):
        with pytest.raises(environment.EnvironmentFailure):
            environment.install(sys.executable, folder, "demo")


def test_this_projects_bytecode_is_compiled_where_python_would_not_write_it(
    installed: list[tuple[str, ...]], folder: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment.install(sys.executable, folder, "demo")
    cached = project / "package" / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"
    assert cached.exists()
    before = cached.read_bytes()
    (project / "package" / "module.py").write_text("x = 1\ny = 2\n")
    os.utime(project / "package" / "module.py", (0, 0))  # another second than before
    environment.install(sys.executable, folder, "demo")
    assert cached.read_bytes() != before, "a module that was edited is compiled again"


def test_uv_is_told_where_pip_would_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_CERT", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    configuration = tmp_path / "pip.conf"
    configuration.write_text(
        "[global]\nindex-url = file:///mirror\nextra-index-url =\n  file:///a\n  file:///b\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    monkeypatch.setenv("PIP_CERT", "/etc/own.pem")
    settings = environment.pip_settings(sys.executable)
    assert settings["UV_DEFAULT_INDEX"] == "file:///mirror"
    assert settings["UV_INDEX"] == "file:///a file:///b"
    assert settings["SSL_CERT_FILE"] == "/etc/own.pem"


def test_a_failure_of_uv_is_a_failure_of_make(project: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python", pip="exit 1")
    (tmp_path / "uv").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "uv").chmod(0o755)
    with pytest.raises(environment.EnvironmentFailure, match="uv cannot install the packages, see above"):
        environment.uv(python, "--editable=.")
