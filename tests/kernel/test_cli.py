"""`bitfusion-kernel` as a user types it, in throwaway prefixes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import jupyter_core.paths
import pytest
from jupyter_client.kernelspec import KernelSpecManager

from bitfusion_kernel.cli import main
from bitfusion_kernel.install import spec_store

INFORMATION = {"status": "ok", "implementation": "ipython", "banner": "a kernel"}


@pytest.fixture(autouse=True)
def only_throwaway_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels installed beside the tests are neither seen nor removed."""
    monkeypatch.setattr(jupyter_core.paths, "ENV_JUPYTER_PATH", [])
    monkeypatch.setattr(jupyter_core.paths, "SYSTEM_JUPYTER_PATH", [])


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prefix where Jupyter looks; the kernel is asked by test_kernel_information and the whole run only."""
    folder = tmp_path / "a prefix"
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "share" / "jupyter"))
    monkeypatch.setattr(spec_store, "ask_kernel", lambda argv, env: INFORMATION)
    return folder


def _install(prefix: Path, *words: str) -> dict[str, Any]:
    assert main(["install", "--prefix", str(prefix), *words]) == 0
    name = words[words.index("--name") + 1].lower() if "--name" in words else "bitfusion"
    path = prefix / "share" / "jupyter" / "kernels" / name / "kernel.json"
    kernel = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(kernel, dict)
    return kernel


def test_install_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    kernel = _install(tmp_path)
    folder = tmp_path / "share" / "jupyter" / "kernels" / "bitfusion"
    assert f'Installed kernel "bitfusion" (Bitfusion) in {folder}' in capsys.readouterr().out
    assert kernel["argv"][0] == sys.executable
    assert os.path.isabs(kernel["argv"][3])
    assert os.path.isfile(kernel["argv"][3])
    assert kernel["argv"][-1] == f"--bitfusion-spec={folder}"
    assert json.loads((folder / "kernel_info.json").read_text())["implementation"] == "ipython"
    wrapped = json.loads((folder / "wrapped_kernel.json").read_text())
    assert wrapped["argv"][0] == sys.executable
    assert wrapped["argv"][-4:] == ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert wrapped["language"] == "python"
    for logo in ("logo-svg.svg", "logo-64x64.png", "logo-32x32.png"):
        assert (folder / logo).stat().st_size > 100
    assert folder.stat().st_mode & 0o755 == 0o755
    spec = KernelSpecManager().get_kernel_spec("bitfusion")
    assert spec.display_name == "Bitfusion"
    assert spec.interrupt_mode == "message"


def test_install_with_a_size(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = _install(
        prefix,
        *(
            "-n",
            "2",
            "-p",
            "0.5",
            "--filter",
            "device.name=Tesla",
            "--filter",
            "a=b",
            "--server_list",
            "h:1;i:2",
        ),
        *("--timeout", "20m", "--acquire", "start", "--name", "Half"),
    )
    assert kernel["display_name"].startswith("Bitfusion (2 GPUs × 50 %")
    assert kernel["argv"][7:] == [
        "--bitfusion-gpus=2",
        "--bitfusion-partial=0.5",
        "--bitfusion-filter=device.name=Tesla",
        "--bitfusion-filter=a=b",
        "--bitfusion-server_list=h:1;i:2",
        "--bitfusion-timeout=20m0s",
        "--bitfusion-acquire=start",
    ]
    kernel = _install(prefix, "-m", "8Gi", "--display-name", "Acht", "--name", "eight")
    assert kernel["display_name"] == "Acht"
    assert "--bitfusion-memory=8192Mi" in kernel["argv"]
    capsys.readouterr()
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["NAME", "eight", "half"]
    assert "1 GPU × 8192 MiB" in lines[1]
    assert "start" in lines[2]
    assert lines[2].endswith(str(prefix / "share" / "jupyter" / "kernels" / "half"))


def test_install_replaces_our_own(prefix: Path) -> None:
    _install(prefix, "-n", "2")
    assert "--bitfusion-gpus=2" not in _install(prefix)["argv"]


def test_install_keeps_a_foreign_kernel(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = prefix / "share" / "jupyter" / "kernels" / "python3"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(
        '{"argv": ["python"], "display_name": "Python", "language": "python"}'
    )
    assert main(["install", "--prefix", str(prefix), "--name", "python3"]) == 1
    assert 'another kernel called "python3"' in capsys.readouterr().err
    assert main(["remove", "python3"]) == 1
    assert "not a Bitfusion kernel" in capsys.readouterr().err
    assert (folder / "kernel.json").exists()


def test_user_and_sys_prefix(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(data))
    assert main(["install", "--user"]) == 0
    assert (data / "kernels" / "bitfusion" / "kernel.json").exists()
    assert spec_store.spec_folder("x", prefix=sys.prefix) == f"{sys.prefix}/share/jupyter/kernels/x"
    assert spec_store.spec_folder("x").endswith("/share/jupyter/kernels/x")


def test_says_when_jupyter_does_not_look_there(
    prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(tmp_path / "elsewhere")
    assert f"JUPYTER_PATH holds {tmp_path / 'elsewhere' / 'share' / 'jupyter'}" in capsys.readouterr().out


def test_remove(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _install(prefix)
    assert main(["remove", "bitfusion"]) == 0
    assert not (prefix / "share" / "jupyter" / "kernels" / "bitfusion").exists()
    capsys.readouterr()
    assert main(["remove", "bitfusion"]) == 1
    assert 'there is no Bitfusion kernel "bitfusion"' in capsys.readouterr().err
    assert main(["list"]) == 0
    assert "No Bitfusion kernel is installed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "1.5"], 'Invalid value "1.5" for -p'),
        (["-n", "0"], 'Invalid value "0" for -n'),
        (["-n", "two"], 'Invalid value "two" for -n'),
        (["-m", "8 Gugel"], 'Invalid value "8 Gugel" for -m'),
        (["-p", "1", "-m", "8Gi"], "not both"),
        (["--timeout", "soon"], "soon"),
        (["--filter", "x"], "key=value"),
        (["--server_list", "h:0"], "h:0"),
        (["--name", "a b"], "cannot be the name"),
    ],
)
def test_mistakes(prefix: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--prefix", str(prefix), *words]) == 1
    said = capsys.readouterr()
    assert message in said.err
    assert "Traceback" not in said.err
    assert not prefix.exists()


def test_a_place_that_cannot_be_written(prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--prefix", "/proc/nowhere"]) == 1
    assert "--user" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [[], ["instal"], ["install", "--user", "--sys-prefix"], ["install", "--acquire", "never"], ["remove"]],
)
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: bitfusion-kernel" in capsys.readouterr().err
