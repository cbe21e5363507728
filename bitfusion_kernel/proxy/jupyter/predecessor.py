"""What Jupyter sent to the kernel before this one, and this one gets, as it has the same ports. Pure.

Jupyter interrupts a kernel before each restart, also one that is dead. Nobody takes that interrupt; it stays
in Jupyter's socket and reaches the next kernel when the socket finds the port open again, perhaps after the
first cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitfusion_kernel.protocol.message_date import sent_at

RECONNECTION = 5.0
"""Seconds after its start in which a kernel may get something older than itself. Later an old date only says
that two machines' clocks differ."""


def meant_for_predecessor(header: Mapping[str, Any], *, started_at: float, now: float) -> bool:
    """Whether a request was sent before this kernel started. False where the header has no usable date.

    Args:
        header: Of the request.
        started_at: When this kernel's proxy started, in seconds of `time.time()`.
        now: The same clock, now.
    """
    if now - started_at > RECONNECTION:
        return False
    sent = sent_at(header)
    return sent is not None and sent < started_at
