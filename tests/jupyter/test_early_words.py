"""What a kernel's interpreter says first is told: in Jupyter's log, and in the cell if it dies."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.jupyter.conftest import FIRST_CELL, PLAIN, Launch
from tests.jupyter.live_kernel import LiveKernel
from tests.support.waiting import wait_until

ENDS = "the kernel process ended with exit code "
NOTHING_IS_THERE = "/nowhere"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Jupyter's, in which kernels write."""
    return tmp_path / "log"


def started(launch: Launch, name: str, log: Path, **variables: str) -> LiveKernel:
    with log.open("wb") as file:
        return launch(name, env=os.environ | variables, stdout=file, stderr=file)


def dies_saying(kernel: LiveKernel, log: Path, *words: str) -> None:
    """The words are in the log; with ours the cell says them, too, as it waits for that kernel."""
    if FIRST_CELL in kernel.name:
        cell = kernel.run("print('never')")
        assert all(each in cell.error_text for each in (ENDS, *words)), cell.error_text
    else:
        kernel.wait_for_end(10)
    wait_until(lambda: all(each in log.read_text() for each in words), log.read_text, 5)


@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_an_interpreter_that_cannot_start(launch: Launch, name: str, log: Path) -> None:
    kernel = started(launch, name, log, PYTHONHOME=NOTHING_IS_THERE)
    dies_saying(kernel, log, "init_fs_encoding", "No module named 'encodings'")


@pytest.mark.parametrize("name", [FIRST_CELL])
def test_all_that_it_said_is_in_the_kernels_log(launch: Launch, name: str, log: Path) -> None:
    kernel = started(launch, name, log, PYTHONHOME=NOTHING_IS_THERE)
    kernel.run("print('never')")
    told = kernel.run("%bitfusion log").stream()
    clients, _, kernels = told.partition("The kernel's own last lines:\n")
    assert f"PYTHONHOME = '{NOTHING_IS_THERE}'" in kernels
    assert "PYTHONHOME" not in clients
    assert "Locked 1 GPUs" in clients


@pytest.fixture
def without_its_library(kernelspecs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of kernelspecs, a plain one and ours, of a program whose shared library is missing."""
    cat = Path(shutil.which("cat") or "").read_bytes()
    assert b"libc.so.6" in cat
    program = tmp_path / "program"
    program.write_bytes(cat.replace(b"libc.so.6", b"libQ.so.6"))
    program.chmod(0o755)
    specs = tmp_path / "jupyter" / "kernels"
    argv = [str(program), "{connection_file}"]
    (specs / "plain").mkdir(parents=True)
    spec = {"argv": argv, "display_name": "Without its library", "language": "python"}
    (specs / "plain" / "kernel.json").write_text(json.dumps(spec))
    ours = shutil.copytree(kernelspecs / "share/jupyter/kernels" / FIRST_CELL, specs / "bitfusion-broken")
    spec = json.loads((ours / "kernel.json").read_text())
    folders = [f"--bitfusion-spec={ours}" if "--bitfusion-spec" in word else word for word in spec["argv"]]
    (ours / "kernel.json").write_text(json.dumps(spec | {"argv": folders}))
    wrapped = json.loads((ours / "wrapped_kernel.json").read_text())
    (ours / "wrapped_kernel.json").write_text(json.dumps(wrapped | {"argv": argv}))
    monkeypatch.setenv("JUPYTER_PATH", f"{tmp_path}/jupyter", prepend=os.pathsep)
    return ["plain", ours.name]


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "first_cell"])
def test_a_loader_that_misses_a_library(
    launch: Launch, without_its_library: list[str], which: int, log: Path
) -> None:
    kernel = started(launch, without_its_library[which], log)
    dies_saying(kernel, log, "error while loading shared libraries: libQ.so.6")


@pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])
def test_a_kernel_that_lives_on_is_heard_in_jupyters_log(
    launch: Launch, name: str, log: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('on stdout')\nimport usercustomise  # misspelt\n")
    kernel = started(launch, name, log, PYTHONPATH=str(tmp_path))
    assert kernel.run("6 * 7").result == "42"
    words = ("on stdout", "Error in sitecustomize", "usercustomise")
    wait_until(lambda: all(each in log.read_text() for each in words), log.read_text)
