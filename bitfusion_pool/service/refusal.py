"""A refusal: why the service does not do what a client asks, in a code and in words; and its log."""

from __future__ import annotations

import logging
import time

from bitfusion_client.errors import BitfusionError, InvalidRequest, PoolUnreadable
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_service import Refused
from bitfusion_pool.service.monitoring.metrics import Metrics

_log = logging.getLogger(__name__)
_QUIET_S = 10.0  # between two lines about one user
_MOST_USERS = 1000


class Refusal(Exception):
    """Raised wherever something is refused; `session` turns it into the message `Refused`.

    Attributes:
        code: One of `refusal_codes`.
        message: For people: what is refused and why.
        next_step: For people: what they can do; may be empty.
    """

    def __init__(self, code: str, message: str, next_step: str = "") -> None:
        super().__init__(code, message, next_step)
        self.code = code
        self.message = message
        self.next_step = next_step

    def to_message(self) -> Refused:
        """The message that tells the client."""
        return Refused(self.code, self.message, self.next_step)


def refusal_of(error: BitfusionError | Refusal) -> Refusal:
    """The refusal that an error of the ledger or of a request is for the client; one that is, as it is."""
    if isinstance(error, Refusal):
        return error
    code = refusal_codes.code_of(error)
    if code != refusal_codes.UNREADABLE:
        return Refusal(code, str(error), "" if isinstance(error, InvalidRequest) else error.next_step)
    # what is wrong with the service's own files is nothing that a user should read or could cure
    return Refusal(
        refusal_codes.UNREADABLE,
        "the service cannot use its own files" if isinstance(error, PoolUnreadable) else str(error),
        "tell the administrator of this pool; the service's log says what is wrong",
    )


class RefusalLog:
    """Logs what is refused, a few lines a user: a log that anybody can fill is a disk that anybody can fill.

    One for a service; sessions and listeners tell it of every refusal.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._quiet: dict[int | str, tuple[float, int]] = {}  # until when, and how many were not logged

    def refused(self, who: int | str, refusal: Refusal) -> None:
        """Count it, and log it unless this user had a line just now.

        `who` is a uid, the name of a token, or an address without a token.
        """
        self._metrics.refusals.labels(refusal.code).inc()
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
