"""The traits that Jupyter's config files set."""

from __future__ import annotations

from typing import Any

import pytest
from traitlets import TraitError
from traitlets.config import Config

from bitfusion_kernel.settings.config_files import BitfusionKernel
from bitfusion_kernel.settings.sources import is_unset
from bitfusion_kernel.settings.table import BY_NAME, SETTINGS


def test_traits_are_the_settings() -> None:
    traits = BitfusionKernel.class_traits(config=True)
    assert sorted(traits) == sorted(BY_NAME)
    for name, trait in traits.items():
        assert BY_NAME[name].allowed in trait.help


def test_a_trait_that_is_not_set_means_that_nothing_is_given() -> None:
    kernel = BitfusionKernel()
    for setting in SETTINGS:
        assert is_unset(getattr(kernel, setting.name))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory", 8192),
        ("memory", "8Gi"),
        ("timeout", 90.0),
        ("idle_release", 90),
        ("idle_release", "off"),
        ("log_states", "on"),
        ("log_states", True),
        ("filter", "a=b"),
        ("filter", ["a=b", "c=d"]),
    ],
)
def test_a_setting_may_be_given_as_each_of_its_types(name: str, value: Any) -> None:
    kernel = BitfusionKernel(config=Config(BitfusionKernel={name: value}))
    assert getattr(kernel, name) == value


@pytest.mark.parametrize(("name", "value"), [("gpus", {}), ("partial", [0.5])])
def test_another_type_is_refused(name: str, value: Any) -> None:
    with pytest.raises(TraitError):
        BitfusionKernel(config=Config(BitfusionKernel={name: value}))
