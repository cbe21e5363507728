"""How much of a GPU's memory the frameworks of a program may take, and the variables that tell them. Pure.

For the pool with real cards, and for GPU pods whose rule has nobody else to keep their programs to a share.

Cooperative: PyTorch and TensorFlow are told at their import (`hook/sitecustomize.py`), JAX reads a variable.
Nothing keeps other programs to their share; CUDA has no such limit for the processes of one card.
"""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HOOK_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")
"""The folder of the sitecustomize.py that goes on PYTHONPATH, as it lies where this runs."""

VARIABLE = "BITFUSION_POOL_MEMORY_LIMITS"
"""For the hook: of each GPU the fraction, or the amount, ``3584MiB``; joined by commas."""

JAX_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""JAX's name and its older one. JAX refuses to start with both, so the one that the user has is kept."""

CONTEXT_MIB = 512
"""What CUDA takes beside what the frameworks count: 300 to 600 MiB a process. It is taken out of the share,
or two halves of one card would not fit on it."""

_AS_IT_IS_USED = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def framework_mib(leased_mib: int) -> int:
    """What of a share a framework may take; of small shares at least half."""
    return max(leased_mib - CONTEXT_MIB, leased_mib // 2)


def framework_fraction(leased_mib: int, total_mib: int) -> float:
    """The same as a fraction of the card; 1 of a whole one."""
    return 1.0 if leased_mib >= total_mib else framework_mib(leased_mib) / total_mib


def fraction_variables(fractions: Sequence[float], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for a program that may take these fractions of its GPUs; none for whole ones.

    `environ` is what the program gets besides: a smaller fraction that the user has set for JAX stays.
    `hook_variables` belongs to them.
    """
    if all(fraction >= 1 for fraction in fractions):
        return {VARIABLE: ""} if VARIABLE in environ else {}  # of a lease under which this command runs
    jax = next((name for name in JAX_VARIABLES if environ.get(name)), JAX_VARIABLES[1])
    return {
        VARIABLE: ",".join(_text(fraction) for fraction in fractions),
        jax: _text(min([*fractions, _fraction(environ.get(jax))])),
        **_AS_IT_IS_USED,
    }


def amount_variables(leased_mib: int, gpus: int) -> dict[str, str]:
    """The same for so many MiB of each of its GPUs, where only the GPU's node knows how many that has.

    The hook asks there, for JAX as well.
    """
    return {VARIABLE: ",".join([f"{framework_mib(leased_mib)}MiB"] * gpus), **_AS_IT_IS_USED}


def hook_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The PYTHONPATH of a program with these variables; empty where it stays. The user's comes after ours.

    Called where the program is started: the hook may lie elsewhere than where its variables were made.
    """
    if VARIABLE not in environ:
        return {}
    own = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part != HOOK_FOLDER]
    hook = [HOOK_FOLDER] if environ[VARIABLE] else []
    return {"PYTHONPATH": os.pathsep.join([*hook, *(own if any(own) or not hook else ())])}


def _text(fraction: float) -> str:
    return f"{int(fraction * 10000) / 10000:.4f}"  # never more than the share


def _fraction(text: str | None) -> float:
    try:
        number = float(text or 1)
    except ValueError:
        return 1.0
    return number if 0 < number < 1 else 1.0
