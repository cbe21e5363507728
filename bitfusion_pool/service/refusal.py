"""A refusal: why the service does not do what a client asks, in a code and in words."""

from __future__ import annotations

from bitfusion_client.errors import (
    BitfusionError,
    InvalidRequest,
    NeverSatisfiable,
    NoGpusAvailable,
    PoolUnreadable,
)
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_service import Refused


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
    if isinstance(error, InvalidRequest):
        return Refusal(refusal_codes.INVALID_REQUEST, str(error))
    if isinstance(error, NeverSatisfiable):
        return Refusal(refusal_codes.NEVER, str(error), error.next_step)
    if isinstance(error, NoGpusAvailable):
        return Refusal(refusal_codes.NOT_ENOUGH_FREE, str(error), error.next_step)
    # what is wrong with the service's own files is nothing that a user should read or could cure
    return Refusal(
        refusal_codes.UNREADABLE,
        "the service cannot use its own files" if isinstance(error, PoolUnreadable) else str(error),
        "tell the administrator of this pool; the service's log says what is wrong",
    )
