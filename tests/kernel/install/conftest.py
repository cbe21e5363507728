"""A kernelspec installed for one test, a `bitfusion` command made for it, and the doctor's report."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import jupyter_core.paths
import pytest

from bitfusion_kernel.cli import main
from bitfusion_kernel.install import check_kernelspec, doctor, spec_store
from bitfusion_kernel.install.finding import PASS, Finding

KERNEL_INFO = {
    "status": "ok",
    "implementation": "ipython",
    "implementation_version": "9",
    "banner": "IPython\nTip: one\n",
}


@pytest.fixture(autouse=True)
def only_throwaway_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels installed beside the tests are neither seen nor removed."""
    monkeypatch.setattr(jupyter_core.paths, "ENV_JUPYTER_PATH", [])
    monkeypatch.setattr(jupyter_core.paths, "SYSTEM_JUPYTER_PATH", [])


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make this shell script the `bitfusion` command; returns its path."""

    def make(script: str) -> Path:
        path = tmp_path / "client" / "bitfusion"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("BITFUSION_CLIENT", str(path))
        return path

    return make


@pytest.fixture
def spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool_folder: Path, client: Callable[[str], Path]
) -> Path:
    """An installed spec and a client that answers; nothing real is started."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setattr(spec_store, "ask_kernel", lambda argv, env: dict(KERNEL_INFO))
    monkeypatch.setattr(check_kernelspec, "ask_kernel", lambda argv, env: dict(KERNEL_INFO))
    monkeypatch.setattr(doctor, "check_process_1", lambda: Finding(PASS, "process 1", "fine"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    client("echo fine")
    assert main(["install", "--prefix", str(tmp_path)]) == 0
    return tmp_path / "share" / "jupyter" / "kernels" / "bitfusion"


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run the doctor with these words; its exit status and what it printed."""

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main(["doctor", *words])
        return status, capsys.readouterr().out

    return run
