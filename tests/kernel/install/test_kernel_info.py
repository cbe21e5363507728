"""Asking a real kernel who it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bitfusion_client.errors import KernelDied
from bitfusion_kernel.install import kernel_info
from bitfusion_kernel.install.kernel_info import ask_kernel

IPYKERNEL = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]


def test_asks_ipykernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    content = ask_kernel(IPYKERNEL, {})
    assert content["status"] == "ok"
    assert content["implementation"] == "ipython"
    assert content["language_info"]["version"] == sys.version.split()[0]
    assert not (tmp_path / "profile_default" / "history.sqlite").exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([sys.executable, "-c", "import no_such_kernel"], "No module named 'no_such_kernel'"),
        (["/no/such/python", "-m", "ipykernel_launcher"], "No such file"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "it ended with exit code 3: it printed nothing"),
    ],
)
def test_a_kernel_that_cannot_start(argv: list[str], words: str) -> None:
    with pytest.raises(KernelDied) as error:
        ask_kernel(argv, {})
    assert words in error.value.user_message
    assert "What to do" in error.value.user_message


def test_a_kernel_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_info, "END_PATIENCE", 0.1)
    with pytest.raises(KernelDied, match="did not answer in time"):
        ask_kernel([sys.executable, "-c", "import time; time.sleep(600)"], {}, limit=0.3)


def test_environment_reaches_the_kernel(tmp_path: Path) -> None:
    with pytest.raises(KernelDied, match="it says hello"):
        ask_kernel(
            [sys.executable, "-c", "import os; raise SystemExit(os.environ['WORDS'])"],
            {"WORDS": "it says hello"},
        )


def test_no_place_for_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(environ: object) -> str:
        raise OSError("no folder for sockets")

    monkeypatch.setattr("bitfusion_kernel.processes.private_folder.create", create)
    with pytest.raises(KernelDied, match="no folder for sockets"):
        ask_kernel(IPYKERNEL, {})
