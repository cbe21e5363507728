"""Errors of the Kubernetes API: no answer, or an answer with a status (not found, conflict, gone, forbidden).

The tree::

    ApiFailure
    ├── NoAnswer            no connection, no whole answer in time
    │   └── AnswerTooLarge  more bytes than the caller takes
    └── ApiError            any other status of 300 or more
        ├── Unauthorized    401
        ├── Forbidden       403
        ├── NotFound        404
        ├── Conflict        409, and 422 when a JSON patch does not fit the object
        ├── Gone            410
        ├── Invalid         422
        ├── TooManyRequests 429
        └── ServerError     5xx
"""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError
from bitfusion_client.kubernetes.raw_objects import mapping

# All that the apiserver says of a JSON patch whose `test` failed or whose path is missing, not which: seen on
# 1.34, and `tests/cluster` compares it. An object that is not valid is refused in other words.
PATCH_NOT_APPLIED = "the server rejected our request due to an error in our request"


class ApiFailure(BitfusionError):
    """A request to the Kubernetes API did not succeed; it is NoAnswer or ApiError."""


class NoAnswer(ApiFailure):
    """The API server could not be reached, or its answer did not come (whole) within the time limit."""

    headline = "The Kubernetes API did not answer."
    next_step = "it is asked again; if this goes on, check the API server and the network to it."


class AnswerTooLarge(NoAnswer):
    """The answer has more bytes than the caller takes; it was not read to its end."""


class ApiError(ApiFailure):
    """The API server answered with an error.

    `status` is HTTP's, `reason` and `message` are those of the Status object (empty if there was none),
    `retry_after` the seconds it asks to wait, None if it does not say.
    """

    headline = "The Kubernetes API refused a request."

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(answered=f"{status} {reason}: {message}" if message else f"{status} {reason}")
        self.args = (status, reason, message, retry_after)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """401, also after the token was read again."""


class Forbidden(ApiError):
    """403: a missing role, a quota, or an admission that refused."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: it exists already, or somebody else was faster.

    422 when a JSON patch does not fit the object: its `test` failed, or a path in it is missing.
    """


class Gone(ApiError):
    """410: a resourceVersion or continue token is too old."""


class Invalid(ApiError):
    """422: the object is not valid."""


class TooManyRequests(ApiError):
    """429."""


class ServerError(ApiError):
    """5xx."""


_CLASSES: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_of_status(
    status: int, body: object, retry_after: float | None = None, reason: str = ""
) -> ApiError:
    """The error class for an HTTP status and a Status object (parsed; anything else is ignored).

    Also called with the Status objects inside a watch.
    """
    data = mapping(body)
    if retry_after is None:
        seconds = mapping(data.get("details")).get("retryAfterSeconds")
        retry_after = float(seconds) if isinstance(seconds, (int, float)) else None
    reason = str(data.get("reason") or reason)
    message = str(data.get("message") or "")
    kind = _CLASSES.get(status, ServerError if status >= 500 else ApiError)
    if status == 422 and message == PATCH_NOT_APPLIED:
        kind = Conflict
    return kind(status, reason, message, retry_after)


def cause_of(error: BaseException) -> str:
    """What went wrong in the transport, on one line: ``MaxRetryError: …``. For the text of NoAnswer."""
    return f"{type(error).__name__}: {str(error) or type(error).__name__}"
