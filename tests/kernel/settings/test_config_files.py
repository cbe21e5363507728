"""Settings in Jupyter's config files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bitfusion_client.errors import WrongSetting
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.settings.config_files import load_config
from bitfusion_kernel.settings.resolve import Settings, current_settings


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The user's folder and, less important, the administrator's."""
    user, system = tmp_path / "user", tmp_path / "system"
    user.mkdir()
    system.mkdir()
    monkeypatch.delenv("JUPYTER_CONFIG_DIR")
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", f"{user}:{system}")
    return user, system


def _write(folder: Path, text: str) -> str:
    path = folder / "jupyter_bitfusion_config.py"
    path.write_text(text)
    return str(path)


def _resolved() -> Settings:
    return current_settings([], os.environ)


def test_reads_python_and_json(folders: tuple[Path, Path]) -> None:
    user, system = folders
    path = _write(user, "c.BitfusionKernel.gpus = 2\nc.BitfusionKernel.filter = ['device.name=Tesla']\n")
    (system / "jupyter_bitfusion_config.json").write_text(
        json.dumps({"BitfusionKernel": {"gpus": 4, "memory": "8Gi", "timeout": "10m"}})
    )
    found = _resolved()
    assert found.request == GpuRequest(2, None, 8192, (("device.name", "Tesla"),), (), 600)
    assert found.sources["gpus"] == path


def test_a_file_is_run_once(folders: tuple[Path, Path]) -> None:
    runs = folders[0] / "runs"
    _write(
        folders[0],
        f"with open({str(runs)!r}, 'a') as file:\n    file.write('x')\nc.BitfusionKernel.locked = ['gpus']\n",
    )
    assert _resolved().locked == ("gpus",)
    assert runs.read_text() == "x"


def test_no_file_no_value(folders: tuple[Path, Path]) -> None:
    assert load_config(os.environ) == {}


def test_other_sections_do_not_matter(folders: tuple[Path, Path]) -> None:
    _write(folders[0], "c.ServerApp.port = 1\n")
    assert load_config(os.environ) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("c.BitfusionKernel.gpu = 2", "gpu"),
        ("c.BitfusionKernel.gpus = 'two'", "whole number"),
        ("c.BitfusionKernel.gpus = {}", "gpus"),
        ("c.BitfusionKernel.partial = 1.5", "at most 1.0"),
        ("c.BitfusionKernel.locked = ['gpu']", "names of settings"),
        ("x = 1\nc.BitfusionKernel.gpus = 1 +", "line 2"),
        ("x = 1\n1 / 0", "line 2: ZeroDivisionError"),
        ("import no_such_module", "ModuleNotFoundError"),
    ],
)
def test_a_mistake_is_one_line_with_the_file(folders: tuple[Path, Path], text: str, words: str) -> None:
    path = _write(folders[0], text)
    with pytest.raises(WrongSetting) as error:
        _resolved()
    message = error.value.user_message
    assert "\n" not in message
    assert words in message
    assert path in message


def test_a_user_cannot_change_what_the_administrator_locks(folders: tuple[Path, Path]) -> None:
    user, system = folders
    admin = _write(system, "c.BitfusionKernel.partial = 0.5\nc.BitfusionKernel.locked = ['partial']\n")
    assert _resolved().locked == ("partial", "memory")
    mine = _write(user, "c.BitfusionKernel.partial = 1.0\n")
    with pytest.raises(WrongSetting, match="locked") as error:
        _resolved()
    assert admin in error.value.user_message
    assert mine in error.value.user_message
    _write(user, "c.BitfusionKernel.memory = '16Gi'\n")
    with pytest.raises(WrongSetting, match="locked"):
        _resolved()
    _write(user, "c.BitfusionKernel.locked = []\nc.BitfusionKernel.gpus = 2\n")
    assert _resolved().request == GpuRequest(gpus=2, partial=0.5)
    assert _resolved().locked == ("partial", "memory")


def test_the_users_size_replaces_the_administrators_other_size(folders: tuple[Path, Path]) -> None:
    user, system = folders
    _write(system, "c.BitfusionKernel.partial = 0.5\n")
    _write(user, "c.BitfusionKernel.memory = '8Gi'\n")
    assert _resolved().request == GpuRequest(memory_mib=8192)
