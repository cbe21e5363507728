"""Why NVIDIA GPUs cannot be read, as sentences with what to do. Pure.

The codes are NVML's (``nvmlReturn_t`` in nvml.h), which nvidia-ml-py has as ``NVML_ERROR_…``.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import dataclass

NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and what to do about it; both are parts of a sentence."""

    why: str
    cure: str


NO_MODULE = Problem(
    "the Python package nvidia-ml-py is missing",
    "pip install nvidia-ml-py, or name the folder of its pynvml.py in BITFUSION_POOL_NVML",
)
TOO_SLOW = Problem(
    "the NVIDIA driver did not answer within {0:g} s",
    "see whether nvidia-smi answers; where it is only slow, keep the driver loaded: nvidia-smi -pm 1",
)
CRASHED = Problem(
    "the NVIDIA library ended the process that asked it ({0})", "see whether nvidia-smi works; restart"
)
NOT_STARTED = Problem(
    "the process that asks the NVIDIA driver cannot be started ({0})",
    "see whether this account may run this Python, and what limits its processes",
)
NO_GPUS = Problem(
    "the NVIDIA driver knows no GPU that can be handed out", "see what nvidia-smi -L shows on this machine"
)
_KNOWN = {
    NO_PERMISSION: Problem(
        "this user may not ask the NVIDIA driver",
        "let the user read and write /dev/nvidiactl and /dev/nvidia0",
    ),
    DRIVER_NOT_LOADED: Problem(
        "the NVIDIA driver is not loaded", "load it: sudo modprobe nvidia; after an update: restart"
    ),
    LIBRARY_NOT_FOUND: Problem(
        "there is no NVIDIA driver (no libnvidia-ml.so.1)",
        "install NVIDIA's driver; containers get it from the NVIDIA container toolkit",
    ),
    LIB_RM_VERSION_MISMATCH: Problem(
        "the NVIDIA driver that is loaded and its library are of different versions",
        "restart the machine, as after every update of the driver",
    ),
}
NO_DRIVER = (NO_MODULE, _KNOWN[LIBRARY_NOT_FOUND], _KNOWN[DRIVER_NOT_LOADED])
"""As it is where there is no NVIDIA GPU; but it may also be that something is missing."""
_OF_A_CARD = {
    GPU_IS_LOST: "it is lost: it has fallen off the bus; only a restart of the machine brings it back",
    RESET_REQUIRED: "it must be reset: nvidia-smi --gpu-reset, once nothing uses it",
    NO_PERMISSION: "this user may not use it",
}
MISSING_CARD = "the driver no longer shows it: it has fallen off the bus, or its MIG devices were changed"


def problem_of(code: int, text: str) -> Problem:
    """The problem for an error of NVML as a whole; `text` is what NVML itself says."""
    if code in _KNOWN:
        return _KNOWN[code]
    return Problem(f"the NVIDIA driver answered: {text} (NVML error {code})", "see whether nvidia-smi works")


def problem_of_card(code: int, text: str) -> str:
    """What is wrong with a card that answered with an error."""
    return _OF_A_CARD.get(code) or f"the NVIDIA driver answered: {text} (NVML error {code})"
