"""Why a service refuses, for programs: the `code` of `Refused`. People read its `message` and `next_step`.

A client that meets a code it does not know shows the message, and takes it for an answer that is final.
"""

from __future__ import annotations

from bitfusion_client.errors import (
    BitfusionError,
    ClientFailed,
    InvalidRequest,
    NeverSatisfiable,
    NoGpusAvailable,
    OverLimit,
)

# the connection ends with these
PROTOCOL = "protocol"  # another version of the messages
BAD_MESSAGE = "bad_message"  # a line that is no message, or too long, or in the wrong place
TOO_SLOW = "too_slow"  # no hello in time, or answers that are not read
TOO_MANY = "too_many"  # connections or messages
WRONG_PEER = "wrong_peer"  # of another pid or user namespace, or without a user of this machine
WRONG_TOKEN = "wrong_token"
SERVICE_ENDS = "service_ends"  # leases stay; connect again
REPLACED = "replaced"  # the lease or request goes on in another connection, which has resumed it

# the connection goes on
INVALID_REQUEST = "invalid_request"
NEVER = "never"  # no server could ever serve the request
NOT_ENOUGH_FREE = "not_enough_free"  # it would have to wait, and may not
OVER_LIMIT = "over_limit"  # of this user or token
ENDED = "ended"  # somebody ended the request while it waited
LEASE_OVER = "lease_over"  # no such lease (any more), or not with this secret
NOT_YOURS = "not_yours"
NOT_ALLOWED = "not_allowed"  # to this token: one issues tokens, and all others do not
NOT_ISSUED = "not_issued"  # a token that is not within the issuer's bounds
UNREADABLE = "unreadable"  # the service cannot use its own files

ENDS_THE_CONNECTION = frozenset(
    {PROTOCOL, BAD_MESSAGE, TOO_SLOW, TOO_MANY, WRONG_PEER, WRONG_TOKEN, SERVICE_ENDS, REPLACED}
)

ERRORS: dict[str, type[BitfusionError]] = {
    NEVER: NeverSatisfiable,
    NOT_ENOUGH_FREE: NoGpusAvailable,
    OVER_LIMIT: OverLimit,
    # what is refused for a reason of its own, while the service would do other things
    **dict.fromkeys((INVALID_REQUEST, ENDED, LEASE_OVER, NOT_YOURS), ClientFailed),
}
"""The error of the command for a code. All others tell of the service, not of what was asked."""


def code_of(error: BitfusionError) -> str:
    """The code for an error of the ledger or of a request; UNREADABLE: it is no matter of the client's."""
    if isinstance(error, InvalidRequest):
        return INVALID_REQUEST
    found = (code for code, kind in ERRORS.items() if kind is not ClientFailed and isinstance(error, kind))
    return next(found, UNREADABLE)
