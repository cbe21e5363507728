"""What a kernel says of simulated GPUs, in its banner and in `%bitfusion`: the CPU computes. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

NOTE = "Simulated GPUs compute on the CPU"
BANNER_LINE = f"{NOTE}; %bitfusion shows what this kernel has."


def holds_only_simulated(environ: Mapping[str, str]) -> bool:
    """Whether a program with this environment has GPUs of the embedded pool, and all are simulated."""
    try:
        devices = json.loads(environ.get("BITFUSION_POOL_DEVICES", "[]"))
        return bool(devices) and all(device["simulated"] is True for device in devices)
    except (ValueError, TypeError, KeyError):
        return False


def with_line(banner: str) -> str:
    """A kernel's banner with the line about simulated GPUs below it."""
    return f"{banner.rstrip()}\n{BANNER_LINE}\n"


def with_banner_line(kernel_info: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a `kernel_info_reply` whose banner has the line."""
    return {**kernel_info, "banner": with_line(str(kernel_info.get("banner") or ""))}
