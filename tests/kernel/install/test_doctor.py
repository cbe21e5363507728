"""The doctor's report as a whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bitfusion_kernel.cli import main
from bitfusion_kernel.install import spec_store

Report = Callable[..., tuple[int, str]]


def test_all_well(spec: Path, report: Report) -> None:
    status, said = report()
    assert status == 0, said
    assert "FAIL" not in said
    assert "WARN" not in said
    for subject in ("settings: 1 GPU", "ipykernel", "private folder", "client", "bitfusion list_gpus: fine"):
        assert subject in said


def test_packages_without_bytecode_are_a_warning(
    spec: Path, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "an empty folder"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    status, said = report()
    assert status == 0
    assert "[WARN] bytecode: bitfusion_client, bitfusion_kernel" in said
    assert "-m compileall -q" in said


def test_with_the_real_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool_folder: Path, report: Report
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["install", "--prefix", str(tmp_path), "--name", "checked"]) == 0
    status, said = report("--name", "checked")
    assert status == 0, said
    assert "answers as cached" in said
    assert "the embedded pool's" in said
    assert "[PASS] pool folder: " in said
    assert "process 1:" in said


def test_no_kernel(client: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    client("echo fine")
    monkeypatch.setattr(spec_store, "installed_specs", list)
    status, said = report()
    assert status == 1
    assert "bitfusion-kernel install --user" in said
    assert said.endswith("\n1 check failed.\n")
    client("exit 1")
    assert report()[1].endswith("\n3 checks failed.\n")
    client("echo fine")
    status, said = report("--name", "nothing")
    assert status == 1
    assert 'no Bitfusion kernel "nothing"' in said
