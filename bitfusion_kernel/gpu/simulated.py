"""What a kernel says of simulated GPUs, in its banner and in `%bitfusion`: the CPU computes.

Before the first cell nobody has asked the embedded pool what it has, and the kernel's first reply must not
wait for that. Without a driver of NVIDIA's on this machine its GPUs can only be simulated.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTE = "Simulated GPUs compute on the CPU"
BANNER_LINE = f"{NOTE}; %bitfusion shows what this kernel has."
PERHAPS = "GPUs of the embedded pool may be simulated, which compute on the CPU; %bitfusion pool shows them"

# a driver that is loaded, its device, and that of Windows' Linux
_OF_A_DRIVER = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")


def pool_note(root: str = "/") -> str:
    """What can be said of the embedded pool's GPUs without asking it; `root` is the machine's file system."""
    return PERHAPS if any(os.path.exists(f"{root}/{path}") for path in _OF_A_DRIVER) else NOTE


def pool_line(root: str = "/") -> str:
    """The same as a line of the banner."""
    note = pool_note(root)
    return BANNER_LINE if note == NOTE else f"{note}."


def holds_only_simulated(environ: Mapping[str, str]) -> bool:
    """Whether a program with this environment has GPUs of the embedded pool, and all are simulated."""
    try:
        devices = json.loads(environ.get("BITFUSION_POOL_DEVICES", "[]"))
        return bool(devices) and all(device["simulated"] is True for device in devices)
    except (ValueError, TypeError, KeyError):
        return False


def with_line(banner: str, line: str = BANNER_LINE) -> str:
    """A kernel's banner with the line about simulated GPUs below it."""
    return f"{banner.rstrip()}\n{line}\n"


def with_banner_line(kernel_info: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a `kernel_info_reply` whose banner says what is known of the embedded pool's GPUs."""
    return {**kernel_info, "banner": with_line(str(kernel_info.get("banner") or ""), pool_line())}
