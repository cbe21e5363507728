"""The variables that keep a program's frameworks to their share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.gpu_memory.limits import (
    HOOK_FOLDER,
    VARIABLE,
    amount_variables,
    fraction_variables,
    framework_fraction,
    framework_mib,
    hook_variables,
)

HALF_OF_16_GB = framework_fraction(8000, 16000)
HALF = {
    VARIABLE: "0.4680",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4680",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "PYTHONPATH": HOOK_FOLDER,
}


def variables(fractions: list[float], environ: dict[str, str]) -> dict[str, str]:
    """All of them, as a command and whoever starts its program add them."""
    limits = fraction_variables(fractions, environ)
    return limits | hook_variables(environ | limits)


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
    assert variables([HALF_OF_16_GB], environ) == HALF | changed


def test_jax_is_told_under_the_one_name_that_is_there() -> None:
    found = variables([HALF_OF_16_GB], {"XLA_CLIENT_MEM_FRACTION": "0.9"})
    assert found["XLA_CLIENT_MEM_FRACTION"] == "0.4680"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in found


def test_whole_cards_have_no_limit_nor_inherit_one() -> None:
    assert variables([framework_fraction(16000, 16000), 1.0], {"PYTHONPATH": "/a"}) == {}
    inherited = {VARIABLE: "0.5", "PYTHONPATH": f"{HOOK_FOLDER}:/a"}
    assert variables([1.0], inherited) == {VARIABLE: "", "PYTHONPATH": "/a"}


def test_each_card_has_its_own_fraction_and_jax_the_smallest() -> None:
    found = variables([1.0, framework_fraction(8000, 32000)], {})
    assert (found[VARIABLE], found["XLA_PYTHON_CLIENT_MEM_FRACTION"]) == ("1.0000,0.2340", "0.2340")


def test_an_amount_of_a_card_of_unknown_size_is_told_as_one() -> None:
    found = amount_variables(4096, 2)
    assert found == {VARIABLE: "3584MiB,3584MiB", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert hook_variables(found) == {"PYTHONPATH": HOOK_FOLDER}


@pytest.mark.parametrize(("leased", "left"), [(8000, 7488), (1024, 512), (600, 300), (1, 0)])
def test_cudas_own_memory_is_part_of_the_share(leased: int, left: int) -> None:
    assert framework_mib(leased) == left


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_nobody_is_told_more_than_the_share(leased: int, total: int) -> None:
    fraction = float(fraction_variables([framework_fraction(leased, total)], {}).get(VARIABLE) or 1)
    assert fraction * total <= leased or leased >= total
