"""A lease, or a place in the queue, over a restart: what is noted of it, and made of the note. Pure."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.processes.messages import JoinedEvent

_STREAMS = {"o": "stdout", "e": "stderr"}


def note(request: GpuRequest, *, in_pod: bool, takes_what_is_left: bool) -> str:
    """What the next proxy has to know of what is asked for, for StartCommand."""
    fields = {"request": request.to_json(), "what_is_left": takes_what_is_left if in_pod else None}
    return json.dumps(fields)


def acquisition(kept: JoinedEvent) -> Acquisition:
    """What the proxy before had, as far as lease and queue go. Raises ValueError: it is no note of ours."""
    from bitfusion_client.errors import InvalidRequest
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.gpu.acquisition import Acquisition
    from bitfusion_kernel.processes.launcher import KERNEL_SPEAKS

    try:
        noted = json.loads(kept.note)
        request, left = GpuRequest.from_json(noted["request"]), noted["what_is_left"]
    except (TypeError, KeyError, AttributeError, InvalidRequest) as error:
        raise ValueError(str(error)) from None
    made = Acquisition(kept.number, request, kept.asked_at)
    if left is not None:
        from bitfusion_kernel.gpu.pod_wait import PodWait

        made.pod_wait = PodWait(takes_what_is_left=left)
    for line in kept.lines:
        made.on_line(line[1:], time.time(), _STREAMS.get(line[:1], ""))
    if kept.granted_at:
        made.held_since = kept.granted_at
        for stream in _STREAMS.values():
            made.on_line(KERNEL_SPEAKS, time.time(), stream)
    return made
