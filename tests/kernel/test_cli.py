"""`bitfusion-kernel` as a user types it, in throwaway prefixes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jupyter_core.paths
import pytest
from jupyter_client.kernelspec import KernelSpecManager

from bitfusion_kernel.cli import main
from bitfusion_kernel.install import spec_store
from tests.support.machine import scaled

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
    assert os.path.isabs(kernel["argv"][5])
    assert os.path.isfile(kernel["argv"][5])
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
    assert kernel["argv"][9:] == [
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


def test_install_replaces_our_own_and_says_what_it_was(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(prefix, "-n", "2", "--acquire", "start")
    assert "It replaces" not in capsys.readouterr().out
    assert "--bitfusion-gpus=2" not in _install(prefix)["argv"]
    assert capsys.readouterr().out.splitlines()[1:] == [
        "It replaces the kernel that was there: Bitfusion (2 GPUs), size 2 GPUs, acquire start"
    ]
    _install(prefix, "-n", "2")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "It replaces the kernel that was there: Bitfusion, size from settings, acquire from settings"
    ]


def test_a_kernel_of_the_same_size_is_shown_under_a_name_of_its_own(
    prefix: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _install(prefix)["display_name"] == "Bitfusion"
    assert _install(prefix, "--name", "other")["display_name"] == "Bitfusion (other)"
    assert _install(prefix, "--name", "half", "-p", "0.5")["display_name"] == "Bitfusion (1 GPU × 50 %)"
    tesla = _install(prefix, "--name", "tesla", "-p", "0.5", "--filter", "device.name=Tesla")
    assert tesla["display_name"] == "Bitfusion (1 GPU × 50 %, tesla)"
    assert _install(prefix, "--name", "half", "-p", "0.5")["display_name"] == "Bitfusion (1 GPU × 50 %)"
    assert _install(prefix)["display_name"] == "Bitfusion"
    capsys.readouterr()
    named = _install(prefix, "--name", "x", "--display-name", "Bitfusion")
    assert named["display_name"] == "Bitfusion"
    assert capsys.readouterr().out.splitlines()[1:] == [
        'Jupyter\'s launcher will show two tiles "Bitfusion": also that of "bitfusion" in '
        f"{prefix / 'share' / 'jupyter' / 'kernels' / 'bitfusion'}"
    ]


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


def test_remove_all(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(prefix)
    _install(prefix, "--name", "half", "-p", "0.5")
    _install(tmp_path / "second")  # hidden behind the one of the same name
    monkeypatch.setenv(
        "JUPYTER_PATH", os.pathsep.join(str(tmp_path / p / "share/jupyter") for p in ("a prefix", "second"))
    )
    foreign = prefix / "share" / "jupyter" / "kernels" / "python3"
    foreign.mkdir(parents=True)
    (foreign / "kernel.json").write_text('{"argv": ["python"], "display_name": "P", "language": "python"}')
    capsys.readouterr()
    assert main(["remove", "--all"]) == 0
    kernels = [prefix / "share/jupyter/kernels", tmp_path / "second/share/jupyter/kernels"]
    assert capsys.readouterr().out.splitlines() == [
        f'Removed kernel "bitfusion" from {kernels[0] / "bitfusion"}',
        f'Removed kernel "half" from {kernels[0] / "half"}',
        f'Removed kernel "bitfusion" from {kernels[1] / "bitfusion"}',
    ]
    assert [path.name for path in kernels[0].iterdir()] == ["python3"]
    assert main(["remove", "--all"]) == 0
    assert capsys.readouterr().out == "No Bitfusion kernel is installed where Jupyter looks.\n"


def test_remove_all_tells_what_it_cannot_remove_and_removes_the_others(
    prefix: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        _install(prefix, "--name", name)
    rmtree = shutil.rmtree

    def refuse_a(path: str) -> None:
        if path.endswith("/a"):
            raise PermissionError(13, "Permission denied")
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", refuse_a)
    capsys.readouterr()
    assert main(["remove", "--all"]) == 1
    said = capsys.readouterr()
    kernels = prefix / "share" / "jupyter" / "kernels"
    assert said.err.splitlines() == [
        f"cannot remove {kernels / 'a'}: Permission denied",
        "What to do: ask whoever installed it",
    ]
    assert said.out == f'Removed kernel "b" from {kernels / "b"}\n'


@pytest.mark.parametrize("words", [["remove"], ["remove", "half", "--all"]])
def test_remove_wants_a_name_or_all(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err == (
        "bitfusion-kernel remove takes the name of one kernel, or --all\n"
        "What to do: `bitfusion-kernel list` shows the names.\n"
    )


def test_an_unknown_command_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["instal"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("bitfusion-kernel: error: argument COMMAND: invalid choice: 'instal'")
    assert all(name in last for name in ("(choose from ", "install", "list", "remove", "doctor"))
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "COMMAND" in capsys.readouterr().out


def test_output_into_a_pipe_that_nobody_reads_is_no_error(prefix: Path) -> None:
    _install(prefix)
    for words in ("list", "doctor"):
        done = subprocess.run(
            f"{shlex.quote(sys.executable)} -m bitfusion_kernel.cli {words} | true",
            shell=True,
            executable="/bin/bash",
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )
        assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-p", "1.5"], 'Invalid value "1.5" for -p'),
        (["-n", "0"], 'Invalid value "0" for -n'),
        (["-n", "two"], 'Invalid value "two" for -n'),
        (["-m", "8 Gugel"], 'Invalid value "8 Gugel" for -m'),
        (["-m", "8"], 'Invalid value "8" for -m: must be at least 256 MiB; did you mean 8Gi?'),
        (["-p", "50%"], "; write -p 0.5"),
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
    [[], ["instal"], ["install", "--user", "--sys-prefix"], ["install", "--acquire", "never"]],
)
def test_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: bitfusion-kernel" in capsys.readouterr().err
