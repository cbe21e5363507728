"""The settings as traitlets, for Jupyter's config files. Imported only when such a file exists.

# ~/.jupyter/jupyter_bitfusion_config.py
c.BitfusionKernel.gpus = 2
c.BitfusionKernel.partial = 0.5
"""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING

from traitlets import Float, Int, List, TraitError, Unicode, Union
from traitlets.config import Config, Configurable
from traitlets.config.loader import JSONFileConfigLoader, PyFileConfigLoader

from bitfusion_client.errors import WrongSetting
from bitfusion_kernel.settings.config_path import config_files
from bitfusion_kernel.settings.table import BY_NAME, ConfigValues, parse_value

if TYPE_CHECKING:
    from collections.abc import Mapping


def _help(name: str) -> str:
    setting = BY_NAME[name]
    return f"{setting.help[0].upper()}{setting.help[1:]}: {setting.allowed}. Default: {setting.default}."


class BitfusionKernel(Configurable):
    """Settings of the Bitfusion kernel; the environment (`BITFUSION_GPUS`, …) wins over them."""

    gpus = Int(None, allow_none=True, help=_help("gpus")).tag(config=True)
    partial = Float(None, allow_none=True, help=_help("partial")).tag(config=True)
    memory = Union([Unicode(), Int()], default_value="", help=_help("memory")).tag(config=True)
    filter = Union([List(Unicode()), Unicode()], default_value=[], help=_help("filter")).tag(config=True)
    server_list = Union([List(Unicode()), Unicode()], default_value=[], help=_help("server_list")).tag(
        config=True
    )
    timeout = Union([Unicode(), Float()], default_value="", help=_help("timeout")).tag(config=True)
    acquire = Unicode("", help=_help("acquire")).tag(config=True)
    client = Unicode("", help=_help("client")).tag(config=True)
    silent_wait = Float(None, allow_none=True, help=_help("silent_wait")).tag(config=True)
    locked = List(Unicode(), help=_help("locked")).tag(config=True)


def load_config(environ: Mapping[str, str] | None = None) -> ConfigValues:
    """The values of all config files of Jupyter's config path; the more important file wins.

    A name that a less important (system-wide) file locks cannot be changed by a more important one.
    Raises WrongSetting, naming the file.
    """
    found = ConfigValues()
    locked: dict[str, str] = {}
    for path in reversed(list(config_files(os.environ if environ is None else environ))):
        for name, value in _read(path).items():
            if name == "locked":
                continue
            holder = locked.get(name)
            if holder and found.get(name) != value:
                raise WrongSetting(name, value, f"is locked by {holder}", path)
            for other in ("partial", "memory") if name in ("partial", "memory") else ():
                if found.files.get(other) != path:
                    found.pop(other, None)
            found[name] = value
            found.files[name] = path
        for name in _read_locked(path):
            locked.setdefault(name, path)
    if locked:
        found["locked"] = list(locked)
        found.files["locked"] = next(iter(locked.values()))
    return found


def _read_locked(path: str) -> list[str]:
    given = _read(path).get("locked")
    names = [str(name) for name in given] if isinstance(given, list) else []
    if any(name in ("partial", "memory") for name in names):
        names += [name for name in ("partial", "memory") if name not in names]
    return names


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
    """Raises WrongSetting for a name that is no setting or a value that is not allowed."""
    if key not in BY_NAME or (
        isinstance(value, (str, int, float, list, tuple)) and value not in ("", [], ())
    ):
        parse_value(key, value, path)
