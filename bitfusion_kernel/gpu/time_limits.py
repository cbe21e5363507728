"""What tools that limit the time of a cell, or of a kernel's start, are told of a wait for GPUs. Pure.

nbclient, and with it papermill, nbconvert and `jupyter execute`, sets a cell's deadline when it sends the
cell; nothing that a kernel says moves it. Most of these tools save nothing when a limit ends, so what is told
goes to stderr, which they show, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfusion_client.clock_time import elapsed_text
from bitfusion_client.errors import WaitCancelled
from bitfusion_kernel.gpu.waiting_notice import LIMIT_OF_CELLS

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition

ENDED_BY_LIMIT = (
    "run the cell again. If a time limit for cells has ended it: "
    "with BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts the wait instead."
)
"""The next step for a cell whose wait a tool has ended."""

_LIMITS_OF_START = (
    "The limit for the kernel's start is --start-timeout of papermill, startup_timeout of nbconvert and "
    "jupyter execute."
)


def start_waits(acquisition: Acquisition) -> str:
    """The kernel is not ready before it has its GPU, and nothing else shows that it waits."""
    return f"the kernel is ready when it has {acquisition.asked_for}{_in_the_queue(acquisition)}"


def cell_waits(acquisition: Acquisition, seconds: float) -> str:
    """A cell has waited for so many seconds, and its tool shows nothing of it."""
    if acquisition.granted:
        return f"a cell has {acquisition.asked_for}; its kernel is starting"
    waited = elapsed_text(seconds)
    return f"a cell has waited for {acquisition.asked_for} for {waited}{_in_the_queue(acquisition)}"


def start_given_up(acquisition: Acquisition, now: float) -> str:
    """The kernel was shut down before it was ready; `now` is `time.monotonic()`."""
    waited = _after(acquisition, now - acquisition.asked_at)
    return f"shut down before the kernel was ready, {waited}. {_LIMITS_OF_START}"


def cell_given_up(acquisition: Acquisition, seconds: float) -> str:
    """The kernel was shut down while a cell waited, for so many seconds."""
    return f"shut down while a cell waited, {_after(acquisition, seconds)}. {LIMIT_OF_CELLS}"


def error_of_cell_given_up(acquisition: Acquisition, seconds: float) -> WaitCancelled:
    """The same, for that cell."""
    answered = f"the kernel was shut down {_after(acquisition, seconds)}"
    return WaitCancelled(acquisition.asked_for, answered, ENDED_BY_LIMIT)


def _after(acquisition: Acquisition, seconds: float) -> str:
    asked = acquisition.asked_for
    return f"after {elapsed_text(seconds)} of waiting for {asked}{_in_the_queue(acquisition)}"


def _in_the_queue(acquisition: Acquisition) -> str:
    queue = acquisition.queue
    if acquisition.granted or queue is None:
        return ""
    facts = [queue.standing, *(f"held by {who}" for who in queue.held_by)]
    told = "; ".join(filter(None, facts)) or queue.why
    return f" ({told})" if told else ""
