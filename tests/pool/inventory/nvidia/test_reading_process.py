"""What one reading of the cards says, and what it says where there is none: every case of a driver."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bitfusion_pool.inventory.nvidia import reading_process
from bitfusion_pool.inventory.nvidia.cards import Card, CardProcess, Reading
from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable, read_cards
from tests.pool.inventory.nvidia.fake_machine import (
    FUNCTION_NOT_FOUND,
    LOST,
    MISMATCH,
    NO_PERMISSION,
    NOT_LOADED,
    ONE,
    PART,
    TWO,
    UNKNOWN,
    FakeMachine,
    card,
)
from tests.support.machine import scaled

LOST_TEXT = "it is lost: it has fallen off the bus; only a restart of the machine brings it back"


def read(machine: FakeMachine, limit_s: float = 20.0) -> Reading:
    return read_cards({**os.environ, **machine.variables}, scaled(limit_s))


def refusal(machine: FakeMachine, limit_s: float = 20.0) -> str:
    with pytest.raises(NvidiaUnusable) as caught:
        read(machine, limit_s)
    return str(caught.value)


def test_a_card_with_what_the_driver_tells_of_it(tmp_path: Path) -> None:
    used = card(used=900, processes=[[41, 300], [42, None], [43, 9]], graphics=[[41, 310], [43, None]])
    found = read(FakeMachine(tmp_path, used, driver="550.54.15", cuda=12040))
    processes = (CardProcess(41, 310), CardProcess(42, None), CardProcess(43, 9))
    assert found == Reading("550.54.15", "12.4", (Card(ONE, "NVIDIA Test", 16000, 900, 7, processes),))


def test_a_card_in_mig_mode_is_replaced_by_its_parts(tmp_path: Path) -> None:
    part = card(PART, 4864, reserved=0, percent=None)
    found = read(FakeMachine(tmp_path, card(ONE, mig=[part]), card(TWO, mig=[])))
    assert found.cards == (Card(PART, "NVIDIA Test", 4864),)
    assert found.notes == ("GPU 1: it is in MIG mode without MIG devices; make some: nvidia-smi mig -cgi …",)


def test_drivers_before_510_know_less_of_memory(tmp_path: Path) -> None:
    old = card(fails={"nvmlDeviceGetMemoryInfo_v2": FUNCTION_NOT_FOUND})
    assert read(FakeMachine(tmp_path, old)).cards[0].memory_mib == 16384


@pytest.mark.parametrize(
    ("function", "code", "text"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", LOST, LOST_TEXT),
        ("nvmlDeviceGetMemoryInfo_v2", 16, "it must be reset: nvidia-smi --gpu-reset, once nothing uses it"),
        ("nvmlDeviceGetMemoryInfo_v2", NO_PERMISSION, "this user may not use it"),
        (
            "nvmlDeviceGetMemoryInfo_v2",
            UNKNOWN,
            "the NVIDIA driver answered: Unknown Error (NVML error 999)",
        ),
    ],
)
def test_a_card_with_a_problem_is_there_with_it_and_the_others_are_read(
    tmp_path: Path, function: str, code: int, text: str
) -> None:
    found = read(FakeMachine(tmp_path, card(ONE, fails={function: code}), card(TWO)))
    assert [(one.uuid, one.problem) for one in found.cards] == [(ONE, text), (TWO, "")]


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_lost_card_without_a_uuid_is_a_note(tmp_path: Path, function: str) -> None:
    found = read(FakeMachine(tmp_path, card(ONE, fails={function: LOST}), card(TWO)))
    assert [one.uuid for one in found.cards] == [TWO]
    assert found.notes == (f"GPU 0: {LOST_TEXT}",)


def test_a_count_that_changes_meanwhile_is_no_error(tmp_path: Path) -> None:
    assert [one.uuid for one in read(FakeMachine(tmp_path, card(ONE), count=3)).cards] == [ONE]


@pytest.mark.parametrize(
    "function",
    [
        "nvmlDeviceGetName",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlShutdown",
    ],
)
def test_what_may_not_be_asked_is_a_gap(tmp_path: Path, function: str) -> None:
    found = read(FakeMachine(tmp_path, card(ONE), fails={function: NO_PERMISSION}))
    assert [(one.uuid, one.memory_mib, one.problem) for one in found.cards] == [(ONE, 16000, "")]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (
            {"library": False},
            "there is no NVIDIA driver (no libnvidia-ml.so.1). What to do: "
            "install NVIDIA's driver; containers get it from the NVIDIA container toolkit",
        ),
        (
            {"fails": {"nvmlInitWithFlags": NOT_LOADED}},
            "the NVIDIA driver is not loaded. What to do: "
            "load it: sudo modprobe nvidia; after an update: restart",
        ),
        (
            {"fails": {"nvmlInitWithFlags": NO_PERMISSION}},
            "this user may not ask the NVIDIA driver. What to do: "
            "let the user read and write /dev/nvidiactl and /dev/nvidia0",
        ),
        (
            {"fails": {"nvmlInitWithFlags": MISMATCH}},
            "the NVIDIA driver that is loaded and its library are of different versions. What to do: "
            "restart the machine, as after every update of the driver",
        ),
        (
            {"fails": {"nvmlDeviceGetCount_v2": UNKNOWN}},
            "the NVIDIA driver answered: Unknown Error (NVML error 999). What to do: "
            "see whether nvidia-smi works",
        ),
        (
            {"dies": "nvmlDeviceGetCount_v2"},
            "the NVIDIA library ended the process that asked it (signal 6). What to do: "
            "see whether nvidia-smi works; restart",
        ),
    ],
)
def test_without_a_driver_that_answers_each_cause_has_its_words(
    tmp_path: Path, more: dict[str, Any], text: str
) -> None:
    if more.get("library") is False and os.path.exists("/dev/nvidiactl"):
        more = {"fails": {"nvmlInitWithFlags": 12}}  # this machine has the library
    asked = refusal(FakeMachine(tmp_path, card(), **more))
    assert asked == f"this machine's NVIDIA GPUs cannot be used: {text}"


def test_a_driver_that_hangs_is_given_up(tmp_path: Path) -> None:
    begin = time.monotonic()
    text = refusal(FakeMachine(tmp_path, card(), hangs={"nvmlDeviceGetMemoryInfo_v2": 600}), 1.0)
    assert text == (
        "this machine's NVIDIA GPUs cannot be used: "
        f"the NVIDIA driver did not answer within {scaled(1.0):g} s. What to do: "
        "see whether nvidia-smi answers; where it is only slow, keep the driver loaded: nvidia-smi -pm 1"
    )
    assert time.monotonic() - begin < 600


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError('pynvml')\n")
    with pytest.raises(NvidiaUnusable) as caught:
        read_cards({**os.environ, "BITFUSION_POOL_NVML": str(tmp_path)}, scaled(20.0))
    assert str(caught.value) == (
        "this machine's NVIDIA GPUs cannot be used: the Python package nvidia-ml-py is missing. What to do: "
        "pip install nvidia-ml-py, or name the folder of its pynvml.py in BITFUSION_POOL_NVML"
    )


@pytest.mark.parametrize("said", ["", "nonsense", "[]", '{"reading": {"cards": 1}}', '{"why": "x"}'])
def test_an_answer_that_is_none_is_told(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # stands in for the interpreter that reads
    stub = tmp_path / "python"
    stub.write_text(f"#!/bin/sh\nprintf %s '{said}'\n")
    stub.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(stub))
    with pytest.raises(NvidiaUnusable, match=r"ended the process that asked it \(status 0\)"):
        read_cards(os.environ, scaled(20.0))


def test_nothing_beside_the_caller_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')\n")
    monkeypatch.chdir(tmp_path)
    machine = FakeMachine(tmp_path, card())
    found = read_cards({**os.environ, **machine.variables, "PYTHONPATH": str(tmp_path)}, scaled(20.0))
    assert len(found.cards) == 1
    assert Path(reading_process.__file__).name == "reading_process.py"
