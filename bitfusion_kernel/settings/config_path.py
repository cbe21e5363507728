"""Finds Jupyter's config files without importing Jupyter.

Under `-I -S` jupyter_core would search the base interpreter's prefix instead of the virtual environment's,
and its import takes longer than looking for the files. A test compares the folders with jupyter_core's.
"""

from __future__ import annotations

import os
import sys

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONFIG_FILE = "jupyter_bitfusion_config"  # .py or .json
_NO = ("no", "n", "false", "off", "0", "0.0")


def config_folders(environ: Mapping[str, str]) -> list[str]:
    """Jupyter's config path, most important first, as `jupyter_core.paths.jupyter_config_path` orders it."""
    if environ.get("JUPYTER_NO_CONFIG"):
        return []
    home = environ.get("HOME") or os.path.expanduser("~")
    user = os.path.join(home, ".jupyter")
    system = ["/usr/local/etc/jupyter", "/etc/jupyter"]
    if _is_set(environ, "JUPYTER_PLATFORM_DIRS"):
        user = os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "jupyter")
        folders = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
        system = [os.path.join(folder, "jupyter") for folder in folders.split(os.pathsep)]
    users = [environ.get("JUPYTER_CONFIG_DIR") or user]
    prefix, virtual = _prefix()
    if not virtual:
        base = environ.get("PYTHONUSERBASE") or os.path.join(home, ".local")
        users.append(os.path.join(base, "etc", "jupyter"))
    own = [os.path.join(prefix, "etc", "jupyter")]
    first = [
        folder.rstrip("/") for folder in environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep) if folder
    ]
    middle = own + users if _environment_first(environ, prefix, virtual) else users + own
    return list(dict.fromkeys(first + middle + system))


def config_files(environ: Mapping[str, str]) -> Iterator[str]:
    """The config files that exist, most important first."""
    for folder in config_folders(environ):
        for ending in (".json", ".py"):
            path = os.path.join(folder, CONFIG_FILE + ending)
            if os.path.isfile(path):
                yield path


def config_files_exist(environ: Mapping[str, str]) -> bool:
    """Whether `config_files` has anything to read and is worth its import (traitlets, 30 ms)."""
    return next(config_files(environ), None) is not None


def _prefix() -> tuple[str, bool]:
    """The environment's prefix, and whether it is a virtual environment; `-S` hides that in sys.prefix."""
    if sys.prefix != sys.base_prefix:
        return sys.prefix, True
    beside = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
    if os.path.exists(os.path.join(beside, "pyvenv.cfg")):
        return beside, True
    return sys.prefix, False


def _environment_first(environ: Mapping[str, str], prefix: str, virtual: bool) -> bool:
    """Whether the files of the environment are more important than those of the user."""
    if "JUPYTER_PREFER_ENV_PATH" in environ:
        return _is_set(environ, "JUPYTER_PREFER_ENV_PATH")
    conda = environ.get("CONDA_PREFIX")
    in_conda = bool(conda and prefix.startswith(conda) and environ.get("CONDA_DEFAULT_ENV", "base") != "base")
    try:
        mine = os.stat(prefix).st_uid == os.geteuid() or os.access(prefix, os.W_OK)
    except OSError:
        mine = False
    return (virtual or in_conda) and mine


def _is_set(environ: Mapping[str, str], name: str) -> bool:
    return name in environ and environ[name].lower() not in _NO
