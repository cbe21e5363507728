"""Whether a kernelspec is the user's own: then it may not change what an administrator has locked.

Asked only where something is locked; a lock without a value leaves the setting to the administrator's
kernelspecs.
"""

from __future__ import annotations

import json
import os

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.protocol.arguments import OPTION_PREFIX, last_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def is_own(options: Sequence[str], environ: Mapping[str, str], lock_file: str) -> bool:
    """Whether the proxy's `--bitfusion-*` options are the user's and not an administrator's.

    They are an administrator's if they stand in a kernelspec outside the user's home and data folders. A lock
    that lies there itself is no more the administrator's than the kernelspec.

    Args:
        options: As on the proxy's command line; one of them names the folder of the kernelspec.
        environ: Names the user's folders.
        lock_file: The config file that locks.
    """
    spec, own = last_value(options, "spec"), _own_folders(environ)
    if _is_below(lock_file, own):
        return False
    return spec is None or _is_below(spec, own) or list(options) != _options_in(spec)


def _own_folders(environ: Mapping[str, str]) -> list[str]:
    home = environ.get("HOME") or os.path.expanduser("~")
    places = [home, environ.get("JUPYTER_DATA_DIR", ""), environ.get("XDG_DATA_HOME", "")]
    # A user without a home of its own has "/".
    return [real for place in places if place and (real := os.path.realpath(place)) != "/"]


def _is_below(path: str, folders: Sequence[str]) -> bool:
    real = os.path.realpath(path)
    return any(os.path.commonpath([real, folder]) == folder for folder in folders)


def _options_in(folder: str) -> list[str] | None:
    """The options in the kernel.json of a kernelspec; None if there is none."""
    try:
        with open(os.path.join(folder, "kernel.json"), encoding="utf-8") as file:
            argv = json.load(file)["argv"]
        return [word for word in argv if word.startswith(OPTION_PREFIX)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
