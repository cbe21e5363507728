"""The wait of one request, from its beginning to the pod that runs: told while it lasts, and bounded."""

from __future__ import annotations

import time

from bitfusion_client.errors import WaitTimedOut
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.request.durations import format_duration_short

if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pods.command.telling import Telling

DEFAULT_TIMEOUT = 1800.0
"""Seconds to wait for a GPU, as in the pool."""
PAUSE = 1.0
UNASKED = "the cluster's API cannot be reached: {}"


class Waiting:
    """It begins when it is made.

    Args:
        request: Says how long.
        telling: Hears what it waits for.
    """

    def __init__(self, request: GpuRequest, telling: Telling) -> None:
        self.request = request
        self.telling = telling
        self._patience = request.timeout or DEFAULT_TIMEOUT
        self._end = time.monotonic() + self._patience

    def check(self, why: str) -> None:
        """Raises WaitTimedOut, with this reason, where it has lasted too long."""
        if time.monotonic() >= self._end:
            waited = format_duration_short(self._patience)
            raise WaitTimedOut(self.request, f"timed out after {waited}: {why}")

    def pause(self, why: str) -> None:
        """Tell the reason, before something is tried again. Raises WaitTimedOut."""
        self.check(why)
        self.telling.waits(why)
        time.sleep(PAUSE)
