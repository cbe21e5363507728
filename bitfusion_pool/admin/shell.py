"""`bitfusion-pool shell`: a program, or the user's shell, that finds the pool's own `bitfusion` command.

For machines with a real client, to which the `bitfusion` that pip installs gives way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import bitfusion_pool

CANNOT_RUN = 127
"""The exit status of a program that does not exist, as shells have it."""


def become(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Replace this process by the program. Returns only if that failed, after one line on stderr."""
    program = list(words) or [environ.get("SHELL") or "/bin/sh"]
    folder = os.path.join(os.path.dirname(os.path.abspath(bitfusion_pool.__file__)), "bin")
    changed = {
        "PATH": folder + os.pathsep + (environ.get("PATH") or os.defpath),
        "BITFUSION_PYTHON": sys.executable,
    }
    try:
        os.execvpe(program[0], program, {**environ, **changed})
    except OSError as error:
        print(f"Error: cannot run {program[0]}: {error.strerror}", file=sys.stderr)
    return CANNOT_RUN
