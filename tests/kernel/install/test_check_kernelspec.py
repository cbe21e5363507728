"""The doctor on a kernelspec: damaged, moved, wrongly set, or around a kernel that has changed since."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bitfusion_kernel.install import check_kernelspec
from bitfusion_kernel.install.finding import PASS, Finding
from bitfusion_kernel.install.kernel_info import ask_kernel

Report = Callable[..., tuple[int, str]]


def _change(spec: Path, name: str, **values: Any) -> None:
    content = json.loads((spec / name).read_text())
    content.update(values)
    (spec / name).write_text(json.dumps(content))


def test_interpreter_gone(spec: Path, report: Report) -> None:
    argv = json.loads((spec / "kernel.json").read_text())["argv"]
    _change(spec, "kernel.json", argv=["/no/python", *argv[1:]])
    status, said = report("--name", "bitfusion")
    assert status == 1
    assert "/no/python is gone" in said
    assert "bitfusion-kernel install --name bitfusion" in said


@pytest.mark.parametrize("argv", [[], "python", [1, 2, 3, 4]])
def test_damaged_command_line(spec: Path, argv: object, report: Report) -> None:
    _change(spec, "kernel.json", argv=argv)
    status, said = report("--name", "bitfusion")
    assert status == 1
    assert "damaged" in said


def test_moved_spec(spec: Path, report: Report) -> None:
    os.rename(spec, spec.with_name("moved"))
    status, said = report("--name", "moved")
    assert status == 1
    assert f"moved here from {spec}" in said


def test_kernel_has_changed(spec: Path, report: Report) -> None:
    _change(spec, "kernel_info.json", implementation_version="8", banner="IPython\nTip: two\n")
    status, said = report()
    assert status == 0
    assert "[WARN]" in said
    assert "implementation_version 8 → 9" in said
    assert "banner" not in said


def test_kernel_cannot_start(spec: Path, monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    monkeypatch.setattr(check_kernelspec, "ask_kernel", ask_kernel)
    _change(spec, "wrapped_kernel.json", argv=[sys.executable, "-m", "no_such_kernel"])
    status, said = report()
    assert status == 1
    assert "No module named no_such_kernel" in said


@pytest.mark.parametrize("name", ["kernel_info.json", "wrapped_kernel.json"])
@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_spec_files_unreadable(spec: Path, name: str, text: str | None, report: Report) -> None:
    if text is None:
        (spec / name).unlink()
    else:
        (spec / name).write_text(text)
    status, said = report()
    assert status == 1
    assert "cannot be read" in said


NO_SETTING = "settings: 1 GPU, acquire first_cell; BITFUSION_NUM_GPUS has no effect. Did you mean"


@pytest.mark.parametrize(
    ("variable", "expected", "told"),
    [("BITFUSION_PARTIAL", 1, "BITFUSION_PARTIAL"), ("BITFUSION_NUM_GPUS", 0, NO_SETTING)],
    ids=["wrong", "a warning"],
)
@pytest.mark.usefixtures("spec")
def test_settings(
    monkeypatch: pytest.MonkeyPatch, report: Report, variable: str, expected: int, told: str
) -> None:
    monkeypatch.setenv(variable, "2")
    status, said = report()
    assert status == expected
    assert told in said


def _start_only(patch: pytest.MonkeyPatch) -> None:
    """The check that starts the spec's command really does it; the kernel behind it is fine."""
    patch.setattr(check_kernelspec, "ask_kernel", ask_kernel)
    patch.setattr(check_kernelspec, "check_cached_information", lambda *_: Finding(PASS, "kernel", "fine"))


def test_the_specs_own_command_is_started_up_to_the_first_reply(
    spec: Path, monkeypatch: pytest.MonkeyPatch, report: Report
) -> None:
    """The kernel itself starts, and the proxy does not: its Python has no pyzmq."""
    _start_only(monkeypatch)
    assert "[PASS] kernelspec bitfusion start: " in report()[1]
    argv = json.loads((spec / "kernel.json").read_text())["argv"]
    entry = argv.index("-c") + 1
    argv[entry] = f"import sys; sys.modules['zmq'] = None; {argv[entry]}"
    _change(spec, "kernel.json", argv=argv)
    status, said = report()
    assert status == 1
    assert "[FAIL] kernelspec bitfusion start: the kernel does not start: it ended with exit code 1" in said
    assert "import of zmq halted" in said


def test_the_start_takes_no_gpu_whatever_the_settings_say(
    spec: Path, monkeypatch: pytest.MonkeyPatch, report: Report, client: Callable[[str], Path], tmp_path: Path
) -> None:
    _start_only(monkeypatch)
    client(f'echo "$@" >> {tmp_path}/asked; echo fine')
    monkeypatch.setenv("BITFUSION_ACQUIRE", "start_and_wait")
    status, said = report()
    assert status == 0, said
    assert "run" not in (tmp_path / "asked").read_text().split()
