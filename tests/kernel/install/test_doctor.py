"""Each check of the doctor, good and bad."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import jupyter_core.paths
import pytest

from bitfusion_kernel.cli import main
from bitfusion_kernel.install import doctor, spec_store

REAL = {
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
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool_folder: Path) -> Path:
    """An installed spec and a client that answers; nothing real is started."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setattr(spec_store, "ask_kernel", lambda argv, env: dict(REAL))
    monkeypatch.setattr(doctor, "ask_kernel", lambda argv, env: dict(REAL))
    _client(tmp_path, monkeypatch, "echo fine")
    assert main(["install", "--prefix", str(tmp_path)]) == 0
    return tmp_path / "share" / "jupyter" / "kernels" / "bitfusion"


def _client(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    client = folder / "client" / "bitfusion"
    client.parent.mkdir(exist_ok=True)
    client.write_text(f"#!/bin/sh\n{script}\n")
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BITFUSION_CLIENT", str(client))


def _report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main(["doctor", *words])
    return status, capsys.readouterr().out


def _change(spec: Path, name: str, **values: Any) -> None:
    content = json.loads((spec / name).read_text())
    content.update(values)
    (spec / name).write_text(json.dumps(content))


def test_all_well(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = _report(capsys)
    assert status == 0, said
    assert "FAIL" not in said
    assert "WARN" not in said
    for subject in ("settings: 1 GPU", "ipykernel", "private folder", "client", "bitfusion list_gpus: fine"):
        assert subject in said


def test_with_the_real_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["install", "--prefix", str(tmp_path), "--name", "checked"]) == 0
    status, said = _report(capsys, "--name", "checked")
    assert status == 0, said
    assert "answers as cached" in said
    assert "the embedded pool's" in said
    assert "is writable" in said


def test_no_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _client(tmp_path, monkeypatch, "echo fine")
    monkeypatch.setattr(spec_store, "installed_specs", list)
    status, said = _report(capsys)
    assert status == 1
    assert "bitfusion-kernel install --user" in said
    status, said = _report(capsys, "--name", "nothing")
    assert status == 1
    assert 'no Bitfusion kernel "nothing"' in said


def test_interpreter_gone(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = json.loads((spec / "kernel.json").read_text())["argv"]
    _change(spec, "kernel.json", argv=["/no/python", *argv[1:]])
    status, said = _report(capsys, "--name", "bitfusion")
    assert status == 1
    assert "/no/python is gone" in said
    assert "bitfusion-kernel install --name bitfusion" in said


@pytest.mark.parametrize("argv", [[], "python", [1, 2, 3, 4]])
def test_damaged_command_line(spec: Path, argv: object, capsys: pytest.CaptureFixture[str]) -> None:
    _change(spec, "kernel.json", argv=argv)
    status, said = _report(capsys, "--name", "bitfusion")
    assert status == 1
    assert "damaged" in said


def test_moved_spec(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.rename(spec, spec.with_name("moved"))
    status, said = _report(capsys, "--name", "moved")
    assert status == 1
    assert f"moved here from {spec}" in said


def test_wrong_setting(
    spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BITFUSION_PARTIAL", "2")
    status, said = _report(capsys)
    assert status == 1
    assert "BITFUSION_PARTIAL" in said


def test_kernel_has_changed(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _change(spec, "kernel_info.json", implementation_version="8", banner="IPython\nTip: two\n")
    status, said = _report(capsys)
    assert status == 0
    assert "[WARN]" in said
    assert "implementation_version 8 → 9" in said
    assert "banner" not in said


def test_kernel_cannot_start(
    spec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bitfusion_kernel.install.kernel_info import ask_kernel

    monkeypatch.setattr(doctor, "ask_kernel", ask_kernel)
    _change(spec, "wrapped_kernel.json", argv=[sys.executable, "-m", "no_such_kernel"])
    status, said = _report(capsys)
    assert status == 1
    assert "No module named no_such_kernel" in said


@pytest.mark.parametrize("name", ["kernel_info.json", "wrapped_kernel.json"])
@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_spec_files_unreadable(
    spec: Path, name: str, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is None:
        (spec / name).unlink()
    else:
        (spec / name).write_text(text)
    status, said = _report(capsys)
    assert status == 1
    assert "cannot be read" in said


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Error: no more'; exit 1", "no more"),
        ("echo 'Error: no more'", "no more"),
        ("exit 3", "FAIL"),
        ("true", "said nothing"),
    ],
)
def test_client_does_not_answer(
    spec: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _client(tmp_path, monkeypatch, script)
    status, said = _report(capsys)
    assert status == (0 if script == "true" else 1)
    assert words in said


def test_client_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _client(tmp_path, monkeypatch, "exec sleep 20")
    monkeypatch.setattr(doctor, "CLIENT_LIMIT", 0.2)
    check = doctor.ask_client(os.environ["BITFUSION_CLIENT"], ["version"])
    assert check.verdict == doctor.FAIL
    assert "no answer" in check.found


def test_client_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = doctor.check_client("/no/such/bitfusion")
    assert check.verdict == doctor.FAIL
    assert check.next_step


def test_no_private_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(environ: object) -> str:
        raise OSError("/x is too long a path for unix sockets")

    monkeypatch.setattr("bitfusion_kernel.processes.private_folder.create", create)
    check = doctor.check_private_folder()
    assert check.verdict == doctor.FAIL
    assert "XDG_RUNTIME_DIR" in check.next_step


def test_pool_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_pool_folder(str(tmp_path)).verdict == doctor.PASS
    assert doctor.check_pool_folder(str(tmp_path / "new")).verdict == doctor.PASS
    monkeypatch.setattr(os, "access", lambda *_: False)
    check = doctor.check_pool_folder(str(tmp_path))
    assert check.verdict == doctor.FAIL
    assert "BITFUSION_POOL_DIR" in check.next_step
