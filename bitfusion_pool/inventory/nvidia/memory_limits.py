"""How much of a GPU's memory the frameworks of a program may take, and the variables that tell them. Pure.

Cooperative: PyTorch and TensorFlow are told at their import (`memory_shares/sitecustomize.py`), JAX reads a
variable. Nothing keeps other programs to their share; CUDA has no such limit for the processes of one card.
"""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.inventory.servers import Device

HOOK_FOLDER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "memory_shares"
)
"""The folder of the sitecustomize.py that goes on PYTHONPATH."""

VARIABLE = "BITFUSION_POOL_MEMORY_LIMITS"
"""For PyTorch and TensorFlow: the fraction of each GPU, joined by commas."""

JAX_VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
"""JAX's name and its older one. JAX refuses to start with both, so the one that the user has is kept."""

CONTEXT_MIB = 512
"""What CUDA takes beside what the frameworks count: 300 to 600 MiB a process. It is taken out of the share,
or two halves of one card would not fit on it."""


def framework_mib(leased_mib: int) -> int:
    """What of a share a framework may take; of small shares at least half."""
    return max(leased_mib - CONTEXT_MIB, leased_mib // 2)


def limit_variables(leased: Sequence[tuple[Device, int]], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables for a program that holds so many MiB of each of these devices; none for whole devices.

    `environ` is what the program gets besides: the user's PYTHONPATH comes after ours, and a smaller fraction
    that the user has set for JAX stays.
    """
    own_path = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part != HOOK_FOLDER]
    if all(memory_mib >= device.memory_mib for device, memory_mib in leased):
        inherited = VARIABLE in environ  # of a lease under which this command runs
        return {VARIABLE: "", "PYTHONPATH": os.pathsep.join(own_path)} if inherited else {}
    fractions = [
        1.0 if memory_mib >= device.memory_mib else framework_mib(memory_mib) / device.memory_mib
        for device, memory_mib in leased
    ]
    jax = next((name for name in JAX_VARIABLES if environ.get(name)), JAX_VARIABLES[1])
    return {
        VARIABLE: ",".join(_text(fraction) for fraction in fractions),
        jax: _text(min([*fractions, _fraction(environ.get(jax))])),
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "PYTHONPATH": os.pathsep.join([HOOK_FOLDER, *(own_path if any(own_path) else ())]),
    }


def _text(fraction: float) -> str:
    return f"{int(fraction * 10000) / 10000:.4f}"  # never more than the share


def _fraction(text: str | None) -> float:
    try:
        number = float(text or 1)
    except ValueError:
        return 1.0
    return number if 0 < number < 1 else 1.0
