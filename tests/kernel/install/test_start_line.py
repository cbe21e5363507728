"""The command line of an installed kernelspec: it starts the proxy, or says that the package is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bitfusion_kernel.cli import main
from bitfusion_kernel.install import spec_store
from tests.support.machine import scaled


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An installed kernel.json."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    monkeypatch.setattr(spec_store, "ask_kernel", lambda argv, env: {"status": "ok"})
    assert main(["install", "--prefix", str(tmp_path), "--name", "Half", "-p", "0.5"]) == 0
    content = json.loads((tmp_path / "share/jupyter/kernels/half/kernel.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=scaled(30), cwd="/")


def test_the_proxy_runs_as_if_it_had_been_started_itself(kernel: dict[str, Any]) -> None:
    done = run([word.replace("{connection_file}", "/no/connection.json") for word in kernel["argv"]])
    assert done.returncode == 2
    assert done.stderr.startswith("bitfusion_kernel: ")
    assert "/no/connection.json" in done.stderr


def test_without_the_package_one_line_says_what_to_do(kernel: dict[str, Any], tmp_path: Path) -> None:
    package = tmp_path / "site-packages"
    argv = [*kernel["argv"][:5], str(package / "bitfusion_kernel" / "__main__.py"), *kernel["argv"][6:]]
    done = run(argv)
    assert done.returncode == 1
    assert done.stderr == (
        f'The Bitfusion kernel "half" cannot start: kubeflow-bitfusion is no longer in {package}. '
        "Install it there again, or remove the kernel with `jupyter kernelspec remove half`.\n"
    )
    assert done.stdout == ""


def test_what_it_advises_removes_the_tile(kernel: dict[str, Any], tmp_path: Path) -> None:
    jupyter = [sys.executable, "-m", "jupyter_client.kernelspecapp"]
    done = run([*jupyter, "remove", "-f", "half"])
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "share/jupyter/kernels/half").exists()


def test_the_doctor_of_another_environment_names_what_is_gone(
    kernel: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "share/jupyter/kernels/half/kernel.json"
    kernel["argv"][5] = str(tmp_path / "gone" / "bitfusion_kernel" / "__main__.py")
    file.write_text(json.dumps(kernel), encoding="utf-8")
    capsys.readouterr()
    assert main(["doctor", "--name", "half"]) == 1
    assert f"[FAIL] kernelspec half: {kernel['argv'][5]} is gone" in capsys.readouterr().out


def test_a_kernelspec_from_before_starts_and_is_whole(
    kernel: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del kernel["argv"][3:5]
    (tmp_path / "share/jupyter/kernels/half/kernel.json").write_text(json.dumps(kernel), encoding="utf-8")
    capsys.readouterr()
    main(["doctor", "--name", "half"])
    assert "is gone" not in capsys.readouterr().out
    done = run([word.replace("{connection_file}", "/no/connection.json") for word in kernel["argv"]])
    assert (done.returncode, done.stderr[:18]) == (2, "bitfusion_kernel: ")


def test_jupyter_itself_tells_it_in_its_log(kernel: dict[str, Any], tmp_path: Path) -> None:
    kernel["argv"][5] = "/gone/bitfusion_kernel/__main__.py"
    (tmp_path / "share/jupyter/kernels/half/kernel.json").write_text(json.dumps(kernel), encoding="utf-8")
    code = (
        "from jupyter_client.manager import start_new_kernel\n"
        "try: start_new_kernel(kernel_name='half', startup_timeout=60)\n"
        "except RuntimeError as error: print(error)"
    )
    done = run([sys.executable, "-c", code])
    assert done.stdout == "Kernel died before replying to kernel_info\n"
    assert "kubeflow-bitfusion is no longer in /gone. Install it there again, or" in done.stderr
