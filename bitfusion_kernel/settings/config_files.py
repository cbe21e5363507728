"""Reads Jupyter's config files, jupyter_bitfusion_config.py and .json. Imported only where one exists.

# ~/.jupyter/jupyter_bitfusion_config.py
c.BitfusionKernel.gpus = 2
c.BitfusionKernel.partial = 0.5
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from types import new_class
from typing import Any

from traitlets import Bool, Float, Int, List, TraitError, TraitType, Unicode, Union
from traitlets.config import Config, Configurable
from traitlets.config.loader import JSONFileConfigLoader, PyFileConfigLoader

from bitfusion_client.errors import WrongSetting
from bitfusion_kernel.settings.config_path import config_files
from bitfusion_kernel.settings.sources import ConfigValues, is_unset
from bitfusion_kernel.settings.table import BY_NAME, SETTINGS, SIZES, Setting, parse_value


def _trait(setting: Setting) -> TraitType[Any, Any]:
    """A trait whose default means that the setting is not given."""
    of_type: dict[type, TraitType[Any, Any]] = {
        int: Int(None, allow_none=True),
        float: Float(None, allow_none=True),
        str: Unicode(""),
        bool: Bool(None, allow_none=True),
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
"""The settings as Jupyter's config files set them, made from the table."""


def load_config(environ: Mapping[str, str]) -> ConfigValues:
    """The values of all config files of Jupyter's config path; the more important file wins.

    A name that a less important (system-wide) file locks cannot be changed by a more important one.

    Raises:
        WrongSetting: A file cannot be read, or holds a wrong or a locked value; names the file.
    """
    found = ConfigValues()
    locked: dict[str, str] = {}  # the name of a setting -> the file that locks it
    for path in reversed(list(config_files(environ))):
        values = _read(path)
        locks = values.pop("locked", ())
        for name, value in values.items():
            if name in locked and found.get(name) != value:
                raise WrongSetting(name, value, f"is locked by {locked[name]}", path)
            for size in SIZES if name in SIZES else ():
                if found.files.get(size) != path:
                    found.pop(size, None)
            found[name] = value
            found.files[name] = path
        for name in parse_value("locked", locks, path):  # type: ignore[attr-defined]  # a tuple of names
            locked.setdefault(name, path)
    if locked:
        found["locked"] = list(locked)
        found.files["locked"] = next(iter(locked.values()))
    return found


def _read(path: str) -> dict[str, object]:
    """The checked values of one file, as written."""
    folder, name = os.path.split(path)
    loader = JSONFileConfigLoader if name.endswith(".json") else PyFileConfigLoader
    try:
        config: Config = loader(name, path=folder).load_config()
    except SyntaxError as error:
        raise WrongSetting("config file", name, f"line {error.lineno}: {error.msg}", path) from None
    except Exception as error:  # a config file is any Python code
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path
        ]
        where = f"line {lines[-1]}: " if lines else ""
        raise WrongSetting("config file", name, f"{where}{type(error).__name__}: {error}", path) from None
    section = config.get("BitfusionKernel", {})
    for key in section:
        _check(key, section[key], path)
    try:
        kernel = BitfusionKernel(config=Config(BitfusionKernel=section))
    except TraitError as error:
        raise WrongSetting("config file", name, str(error), path) from None
    return {key: getattr(kernel, key) for key in section}


def _check(key: str, value: object, path: str) -> None:
    """Raise WrongSetting, in better words than traitlets has, for a wrong name or value."""
    readable = isinstance(value, (str, int, float, list, tuple)) and not is_unset(value)
    if readable or key not in BY_NAME:
        parse_value(key, value, path)
