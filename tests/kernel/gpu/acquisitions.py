"""Attempts to get GPUs: one that only asks, and one that got two halves and launched its kernel."""

from __future__ import annotations

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.processes.messages import LaunchedEvent

STAMP = "[INFO] 2026-11-21T00:00:00Z"


def asked() -> Acquisition:
    return Acquisition(1, GpuRequest(), 0.0)


def launched(**environment: str) -> Acquisition:
    acquisition = asked()
    acquisition.on_line(
        f"{STAMP} Requesting GPUs [0 1] with 8080 MiB of memory from server 0, with version 4.0.0...", 0.0
    )
    acquisition.on_launched(LaunchedEvent(10, 11, environment), 1.0)
    return acquisition
