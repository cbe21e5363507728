"""What tools that limit times are told of a wait."""

from __future__ import annotations

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu import time_limits
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.processes.messages import LaunchedEvent

POSITION = (
    "[INFO] 2026-11-21T00:00:00Z Waiting for GPUs: position 2 of 3; held by ada: a.ipynb; before you bob"
)
QUEUE = " (position 2 of 3; held by ada: a.ipynb)"
LIMIT_OF_START = (
    "The limit for the kernel's start is --start-timeout of papermill, startup_timeout of nbconvert and "
    "jupyter execute."
)
LIMIT_OF_CELLS = (
    "A time limit for cells counts this wait. "
    "With BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts it instead."
)


def _acquisition(*, in_queue: bool = True) -> Acquisition:
    acquisition = Acquisition(1, GpuRequest(partial=0.5), 100.0)
    if in_queue:
        acquisition.on_line(POSITION, 0.0)
    return acquisition


@pytest.mark.parametrize(("in_queue", "queue"), [(True, QUEUE), (False, "")])
def test_each_says_what_is_waited_for_and_what_counts_the_wait(in_queue: bool, queue: str) -> None:
    acquisition = _acquisition(in_queue=in_queue)
    waits = time_limits.start_waits(acquisition)
    assert waits == f"the kernel is ready when it has 1 GPU × 50 %{queue}"
    assert time_limits.start_given_up(acquisition, 165.0) == (
        f"shut down before the kernel was ready, after 1 min 05 s of waiting for 1 GPU × 50 %{queue}. "
        + LIMIT_OF_START
    )
    assert time_limits.cell_given_up(acquisition, 12.7) == (
        f"shut down while a cell waited, after 12 s of waiting for 1 GPU × 50 %{queue}. " + LIMIT_OF_CELLS
    )
    assert time_limits.error_of_cell_given_up(acquisition, 12.7).user_message.splitlines() == [
        "Waiting for GPUs was cancelled.",
        "Asked for: 1 GPU × 50 %",
        f"Answer: the kernel was shut down after 12 s of waiting for 1 GPU × 50 %{queue}",
        "What to do: run the cell again. If a time limit for cells has ended it: "
        "with BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts the wait instead.",
    ]


def test_once_the_gpu_is_there_nobody_else_is_named() -> None:
    acquisition = _acquisition()
    acquisition.on_launched(LaunchedEvent(10, 11, {}), 6.0)
    assert "held by" not in time_limits.start_given_up(acquisition, 105.0)
