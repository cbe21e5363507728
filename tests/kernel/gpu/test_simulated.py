"""What a kernel's banner says of simulated GPUs, and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bitfusion_kernel.gpu import simulated
from bitfusion_kernel.gpu.simulated import (
    BANNER_LINE,
    holds_only_simulated,
    pool_line,
    pool_note,
    with_banner_line,
)


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine of the tests has."""
    monkeypatch.setattr(simulated, "_OF_A_DRIVER", ())


def test_the_line_in_the_banner_is_one_short_sentence() -> None:
    assert BANNER_LINE == "Simulated GPUs compute on the CPU; %bitfusion shows what this kernel has."


@pytest.mark.parametrize("file", ["proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"])
def test_where_there_is_an_nvidia_driver_nobody_knows_before_he_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.undo()
    assert pool_note(str(tmp_path)) == "Simulated GPUs compute on the CPU"
    assert pool_line(str(tmp_path)) == BANNER_LINE
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).touch()
    said = "GPUs of the embedded pool may be simulated, which compute on the CPU; %bitfusion pool shows them"
    assert pool_note(str(tmp_path)) == said
    assert pool_line(str(tmp_path)) == f"{said}."


@pytest.mark.parametrize("banner", ["Python 3\nTip: one\n", "Python 3\nTip: one"])
def test_it_stands_below_the_kernels_own_banner(banner: str) -> None:
    info = {"status": "ok", "banner": banner}
    noted = with_banner_line(info)
    assert noted == {"status": "ok", "banner": f"Python 3\nTip: one\n{BANNER_LINE}\n"}
    assert info["banner"] == banner, "what is cached stays as it is"


@pytest.mark.parametrize("info", [{}, {"banner": None}, {"banner": ""}])
def test_a_kernel_without_a_banner_gets_one(info: dict[str, object]) -> None:
    assert with_banner_line(info)["banner"].strip() == BANNER_LINE


@pytest.mark.parametrize(
    ("devices", "simulated"),
    [
        ([{"simulated": True}], True),
        ([{"simulated": True}, {"simulated": True}], True),
        ([{"simulated": True}, {"simulated": False}], False),
        ([{"simulated": False}], False),
        ([{}], False),
        ([3], False),
        ({"simulated": True}, False),
        (3, False),
        ([], False),
    ],
)
def test_only_a_lease_of_simulated_gpus_counts(devices: object, simulated: bool) -> None:
    assert holds_only_simulated({"BITFUSION_POOL_DEVICES": json.dumps(devices)}) is simulated


@pytest.mark.parametrize("environ", [{}, {"BITFUSION_POOL_DEVICES": "["}])
def test_under_any_other_client_nothing_is_said(environ: dict[str, str]) -> None:
    assert not holds_only_simulated(environ)
