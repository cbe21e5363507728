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
    NO_DRIVER,
    NO_GPUS,
    NO_MODULE,
    NOT_STARTED,
    TOO_SLOW,
    Problem,
    problem_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from subprocess import Popen
    from typing import Any

    from bitfusion_pool.inventory.nvidia.cards import Reading

MODULE_FOLDER = "BITFUSION_POOL_NVML"
"""The variable that names the folder of pynvml.py, where it is not beside this Python's others."""

LIMIT_S = 8.0
MOST_BYTES = 1 << 20


class NvidiaUnusable(PoolUnreadable):
    """This machine's NVIDIA GPUs cannot be read; the message says why and what to do."""


class NoNvidiaDriver(NvidiaUnusable):
    """There is no driver that runs, or nothing to ask it with: perhaps the machine has no NVIDIA GPU."""


def read_cards(environ: Mapping[str, str], limit_s: float = LIMIT_S) -> Reading:
    """All NVIDIA cards of this machine now. Blocks up to `limit_s` seconds.

    Called by `bitfusion-pool init --nvidia`, before a lease of real devices, and wherever their use is shown.

    Args:
        environ: The environment; BITFUSION_POOL_NVML in it names the folder of pynvml.
        limit_s: How long the driver may take, in seconds. Without persistence mode some take a second a card.

    Raises:
        NvidiaUnusable: There is no reading.
    """
    import subprocess

    process = start_reading(environ)
    try:
        out, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            process.communicate(timeout=0.5)
        except subprocess.TimeoutExpired:
            pass  # in the driver, where no signal reaches it; it ends when the driver does
        raise too_slow(limit_s) from None
    return reading_of_answer(out, process.returncode)


def start_reading(environ: Mapping[str, str]) -> Popen[bytes]:
    """The reading process; it writes its answer to its stdout, and ends. For who must not block.

    Raises:
        NvidiaUnusable: It cannot be started.
    """
    import subprocess

    try:
        return subprocess.Popen(
            # -I: no folder that the caller stands in or names for others decides what is imported
            [sys.executable, "-I", os.path.abspath(__file__)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError as error:
        raise _unusable(NOT_STARTED, error.strerror) from None


def reading_of_answer(out: bytes, status: int) -> Reading:
    """The reading in what the reading process wrote before it ended with this status, as `Popen` counts it.

    Raises:
        NvidiaUnusable: It has none, or crashed.
    """
    import json

    try:
        answer = json.loads(out[:MOST_BYTES])
        if "reading" in answer:
            return reading_from_json(answer["reading"])
        problem = Problem(str(answer["why"]), str(answer["cure"]))
    except (ValueError, KeyError, TypeError):
        raise _unusable(CRASHED, f"signal {-status}" if status < 0 else f"status {status}") from None
    raise _unusable(problem)


def too_slow(limit_s: float) -> NvidiaUnusable:
    """The error for a driver that did not answer within so many seconds."""
    return _unusable(TOO_SLOW, limit_s)


def no_gpus(reading: Reading) -> NvidiaUnusable:
    """The error for a driver that answers, and has nothing to hand out."""
    notes = "".join(f"; {note}" for note in reading.left_out())
    return _unusable(Problem(NO_GPUS.why + notes, NO_GPUS.cure))


def _unusable(problem: Problem, *values: object) -> NvidiaUnusable:
    why = problem.why.format(*values) if values else problem.why
    kind = NoNvidiaDriver if problem in NO_DRIVER else NvidiaUnusable
    return kind("", f"this machine's NVIDIA GPUs cannot be used: {why}", problem.cure)


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
