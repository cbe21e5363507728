"""Logs what is refused, a few lines a user: a log that anybody can fill is a disk that anybody can fill."""

from __future__ import annotations

import logging
import time

from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import Refusal

_log = logging.getLogger(__name__)
_QUIET_S = 10.0  # between two lines about one user
_MOST_USERS = 1000


class RefusalLog:
    """One for a service; sessions and the listener tell it of every refusal."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._quiet: dict[int | str, tuple[float, int]] = {}  # until when, and how many were not logged

    def refused(self, who: int | str, refusal: Refusal) -> None:
        """Count it, and log it unless this user had a line just now.

        `who` is a uid, the name of a token, or an address without a token.
        """
        self._metrics.refused(refusal.code)
        now = time.monotonic()
        until, unlogged = self._quiet.get(who, (0.0, 0))
        if now < until:
            self._quiet[who] = (until, unlogged + 1)
            return
        if len(self._quiet) >= _MOST_USERS:
            self._quiet.clear()
        self._quiet[who] = (now + _QUIET_S, 0)
        _log.info(
            "refused",
            extra={"client": who, "code": refusal.code, "reason": refusal.message, "not_logged": unlogged},
        )
