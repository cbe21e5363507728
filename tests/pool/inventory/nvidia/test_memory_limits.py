"""The variables that keep a program's frameworks to their share."""

from __future__ import annotations

import pytest

from bitfusion_pool.inventory.nvidia.memory_limits import (
    HOOK_FOLDER,
    VARIABLE,
    framework_mib,
    limit_variables,
)
from bitfusion_pool.inventory.servers import Device

CARD = Device(0, "NVIDIA Test", 16000, simulated=False, uuid="GPU-1")
OTHER = Device(1, "NVIDIA Test", 32000, simulated=False, uuid="GPU-2")
HALF = {
    VARIABLE: "0.4680",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4680",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "PYTHONPATH": HOOK_FOLDER,
}


@pytest.mark.parametrize(
    ("environ", "changed"),
    [
        ({}, {}),
        ({"PYTHONPATH": "/a:/b"}, {"PYTHONPATH": f"{HOOK_FOLDER}:/a:/b"}),
        ({"PYTHONPATH": f"{HOOK_FOLDER}:/a"}, {"PYTHONPATH": f"{HOOK_FOLDER}:/a"}),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".2"}, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2000"}),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "much"}, {}),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "4.0"}, {}),
    ],
)
def test_half_a_card(environ: dict[str, str], changed: dict[str, str]) -> None:
    assert limit_variables([(CARD, 8000)], environ) == HALF | changed


def test_jax_is_told_under_the_one_name_that_is_there() -> None:
    found = limit_variables([(CARD, 8000)], {"XLA_CLIENT_MEM_FRACTION": "0.9"})
    assert found["XLA_CLIENT_MEM_FRACTION"] == "0.4680"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in found


def test_whole_cards_have_no_limit_nor_inherit_one() -> None:
    assert limit_variables([(CARD, 16000), (OTHER, 32000)], {"PYTHONPATH": "/a"}) == {}
    inherited = {VARIABLE: "0.5", "PYTHONPATH": f"{HOOK_FOLDER}:/a"}
    assert limit_variables([(CARD, 16000)], inherited) == {VARIABLE: "", "PYTHONPATH": "/a"}


def test_each_card_has_its_own_fraction_and_jax_the_smallest() -> None:
    found = limit_variables([(CARD, 16000), (OTHER, 8000)], {})
    assert (found[VARIABLE], found["XLA_PYTHON_CLIENT_MEM_FRACTION"]) == ("1.0000,0.2340", "0.2340")


@pytest.mark.parametrize(("leased", "left"), [(8000, 7488), (1024, 512), (600, 300), (1, 0)])
def test_cudas_own_memory_is_part_of_the_share(leased: int, left: int) -> None:
    assert framework_mib(leased) == left
