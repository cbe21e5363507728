"""NVML in a process of its own: it may hang or crash without harm, and who has no NVIDIA GPU never starts it.

`read_cards` starts this file as a program; it prints one line of JSON, a reading or what went wrong.
Measured: 0.08 s of processor time, the driver's own not counted, a third of it for importing pynvml.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # started as a program: this package is not beside the interpreter's own
    sys.path.append(os.path.abspath(f"{os.path.dirname(os.path.abspath(__file__))}/../../.."))

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.nvidia.cards import reading_from_json, reading_to_json
from bitfusion_pool.inventory.nvidia.nvml_problems import (
    CRASHED,
    NO_MODULE,
    TOO_SLOW,
    Problem,
    problem_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from bitfusion_pool.inventory.nvidia.cards import Reading

MODULE_FOLDER = "BITFUSION_POOL_NVML"
"""The variable that names the folder of pynvml.py, where it is not beside this Python's others."""

LIMIT_S = 8.0
MOST_BYTES = 1 << 20


class NvidiaUnusable(PoolUnreadable):
    """This machine's NVIDIA GPUs cannot be read; the message says why and what to do."""


def read_cards(environ: Mapping[str, str], limit_s: float = LIMIT_S) -> Reading:
    """All NVIDIA cards of this machine now. Blocks up to `limit_s` seconds.

    Called by `bitfusion-pool init --nvidia`, before a lease of real devices, and wherever their use is shown.

    Args:
        environ: The environment; BITFUSION_POOL_NVML in it names the folder of pynvml.
        limit_s: How long the driver may take, in seconds. Without persistence mode some take a second a card.

    Raises:
        NvidiaUnusable: There is no reading.
    """
    import json
    import subprocess

    # -I: no folder that the caller stands in or names for other programs decides what is imported
    command = [sys.executable, "-I", os.path.abspath(__file__)]
    process = subprocess.Popen(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        close_fds=True,
    )
    try:
        out, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            process.communicate(timeout=0.5)
        except subprocess.TimeoutExpired:
            pass  # in the driver, where no signal reaches it; it ends when the driver does
        raise _unusable(TOO_SLOW, limit_s) from None
    try:
        answer = json.loads(out[:MOST_BYTES])
        if "reading" in answer:
            return reading_from_json(answer["reading"])
        problem = Problem(str(answer["why"]), str(answer["cure"]))
    except (ValueError, KeyError, TypeError):
        code = process.returncode
        raise _unusable(CRASHED, f"signal {-code}" if code < 0 else f"status {code}") from None
    raise _unusable(problem)


def _unusable(problem: Problem, *values: object) -> NvidiaUnusable:
    why = (
        f"this machine's NVIDIA GPUs cannot be used: {problem.why.format(*values) if values else problem.why}"
    )
    return NvidiaUnusable("", why, problem.cure)


def _answer() -> dict[str, Any]:
    nvml = _pynvml()
    if nvml is None:
        return {"why": NO_MODULE.why, "cure": NO_MODULE.cure}
    from bitfusion_pool.inventory.nvidia.nvml_reader import read_all

    try:
        return {"reading": reading_to_json(read_all(nvml))}
    except nvml.NVMLError as error:
        found = problem_of(error.value, str(error))
        return {"why": found.why, "cure": found.cure}


def _pynvml() -> Any:
    from importlib import import_module

    named = os.environ.get(MODULE_FOLDER)
    if named:
        sys.path.insert(0, named)
    try:
        return import_module("pynvml")
    except ModuleNotFoundError:
        import site

        sys.path.append(site.getusersitepackages())  # pip install --user, which -I leaves out
    try:
        return import_module("pynvml")
    except ModuleNotFoundError:
        return None


if __name__ == "__main__":
    import json

    sys.stdout.write(json.dumps(_answer()) + "\n")
