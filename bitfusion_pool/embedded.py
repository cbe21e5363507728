"""The folder in which the stand-in command lies, executable, for whoever puts it on PATH."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

COMMAND = "bitfusion"


def command_folder(environ: Mapping[str, str] | None = None) -> str:
    """A folder with an executable `bitfusion`: the package's own, or one made for this user.

    Some installers drop the mode bit. If it cannot be set again (a read-only installation), a short script
    under the user's cache folder stands in. Raises OSError if that cannot be written either.
    """
    environ = os.environ if environ is None else environ
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
    command = os.path.join(folder, COMMAND)
    if os.access(command, os.X_OK):
        return folder
    try:
        os.chmod(command, os.stat(command).st_mode | 0o111)
        return folder
    except OSError:
        return _private_folder(command, environ)


def _private_folder(command: str, environ: Mapping[str, str]) -> str:
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    # ends like the package's folder: whoever looks at the path sees that this is the stand-in
    folder = os.path.join(cache, "bitfusion_pool", "bin")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    script = os.path.join(folder, COMMAND)
    text = f'#!/bin/sh\nexec {_shell(sys.executable)} -I -S {_shell(command)} "$@"\n'
    try:
        with open(script, encoding="utf-8") as file:
            if file.read() == text and os.access(script, os.X_OK):
                return folder
    except OSError:
        pass
    draft = f"{script}.{os.getpid()}"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, script)
    return folder


def _shell(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"
