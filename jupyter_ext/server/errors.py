"""The errors of the REST API, one ladder: each has a code, a status of HTTP, and words for a person.

::

    ApiError           internal, 500
    ├── NotFound       no such address, or no such kernel of this server
    ├── WrongRequest   what was sent cannot be used
    ├── Forbidden      not signed in, not authorised, or from a foreign page
    ├── NotBitfusion   the kernel is none of ours, or has just ended
    ├── NoAnswer       the kernel does not answer in time
    ├── Refused        the kernel has answered that it will not
    └── PoolAway       the pool could not be asked

`as_api_error` makes one of whatever was raised. No server is imported here.
"""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError, ClientFailed, PoolOutOfReach, WrongInput
from bitfusion_client.one_line import one_line

LONGEST_MESSAGE = 2000  # characters


class ApiError(Exception):
    """What went wrong, as an answer. `message` is for a person; `next_step` says what to do, or is empty."""

    code = "internal"
    status = 500

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message, next_step)
        self.message = message[:LONGEST_MESSAGE]
        self.next_step = next_step[:LONGEST_MESSAGE]

    def to_json(self) -> dict[str, str]:
        """The body of the answer."""
        return {"code": self.code, "message": self.message, "next_step": self.next_step}


class NotFound(ApiError):
    """There is no such thing on this server."""

    code = "not_found"
    status = 404


class WrongRequest(ApiError):
    """The body, or the method, cannot be used as it stands."""

    code = "wrong_input"
    status = 400


class Forbidden(ApiError):
    """Whoever asks may not."""

    code = "forbidden"
    status = 403


class NotBitfusion(ApiError):
    """The kernel has no proxy of ours."""

    code = "not_bitfusion"
    status = 409


class NoAnswer(ApiError):
    """The kernel's proxy says nothing in time."""

    code = "no_answer"
    status = 504


class Refused(ApiError):
    """The kernel's proxy has said no, and why."""

    code = "refused"
    status = 409


class PoolAway(ApiError):
    """The pool could not be asked."""

    code = "pool_out_of_reach"
    status = 503


INTERNAL_NEXT_STEP = "Try again; the log of the Jupyter server has the details."

_OF_STATUS: dict[int, tuple[type[ApiError], str, str]] = {
    400: (WrongRequest, "This request cannot be understood.", "Send a request that openapi.yaml describes."),
    403: (
        Forbidden,
        "This request is not allowed.",
        "Reload the page and sign in; a request that changes something must carry the page's XSRF token.",
    ),
    404: (NotFound, "There is nothing at this address.", "openapi.yaml lists the addresses."),
    405: (
        WrongRequest,
        "This address does not support that method.",
        "Use the method that openapi.yaml names.",
    ),
}


def of_status(status: int, said: str = "") -> ApiError:
    """The error of a refusal by the server's own means, such as a missing sign-in.

    Args:
        status: Of HTTP.
        said: The server's own words; they replace the message of a refusal only, and never that of a fault.
    """
    known = _OF_STATUS.get(status) or (_OF_STATUS[400] if 400 <= status < 500 else None)
    if known is None:
        return ApiError("The server failed to handle this request.", INTERNAL_NEXT_STEP)
    kind, message, next_step = known
    return kind(one_line(said) if said else message, next_step)


def of_bitfusion(error: BitfusionError) -> ApiError:
    """The error of the vocabulary's own, in its words."""
    if isinstance(error, WrongInput):
        return WrongRequest(error.user_message, error.next_step)
    message = "\n".join(line for line in error.user_message.splitlines() if not line.startswith(_NEXT_STEP))
    kind = PoolAway if isinstance(error, (PoolOutOfReach, ClientFailed)) else Refused
    return kind(message, one_line(error.next_step))


_NEXT_STEP = "What to do: "


def of_words(told: str) -> Refused:
    """What a kernel's proxy has answered instead of doing it: the text that a cell would show."""
    lines = told.splitlines()
    steps = [line.removeprefix(_NEXT_STEP) for line in lines if line.startswith(_NEXT_STEP)]
    message = "\n".join(line for line in lines if not line.startswith(_NEXT_STEP))
    return Refused(message or "The kernel refuses this.", " ".join(steps))
