"""The settings as a traitlets class, `c.BitfusionKernel` in Jupyter's config files. Made from the table."""

from __future__ import annotations

from types import new_class
from typing import Any

from traitlets import Float, Int, List, TraitType, Unicode, Union
from traitlets.config import Configurable

from bitfusion_kernel.settings.table import SETTINGS, Setting


def _trait(setting: Setting) -> TraitType[Any, Any]:
    """A trait whose default means that the setting is not given."""
    of_type: dict[type, TraitType[Any, Any]] = {
        int: Int(None, allow_none=True),
        float: Float(None, allow_none=True),
        str: Unicode(""),
        list: List(Unicode()),
    }
    first, *others = setting.config_types
    trait = of_type[first]
    if others:
        trait = Union([of_type[kind] for kind in setting.config_types], default_value=first())
    trait.help = (
        f"{setting.help[0].upper()}{setting.help[1:]}: {setting.allowed}. Default: {setting.default}."
    )
    return trait.tag(config=True)


def _define(namespace: dict[str, Any]) -> None:
    namespace["__doc__"] = (
        "Settings of the Bitfusion kernel; the environment (`BITFUSION_GPUS`, …) wins over them."
    )
    namespace["__module__"] = __name__
    namespace.update({setting.name: _trait(setting) for setting in SETTINGS})


BitfusionKernel: type[Configurable] = new_class("BitfusionKernel", (Configurable,), exec_body=_define)
