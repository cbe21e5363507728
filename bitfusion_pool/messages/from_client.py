"""What a client says to a service. The first message is `Hello`; the answers are in `from_service`.

=========  ====================================================================
`Hello`    `Welcome`, or `Refused` and the end of the connection
`Look`     `PoolSnapshot`
`Acquire`  any number of `Waiting`, then `Granted` or `Refused`
`Cancel`   `Released`; without an id if `Granted` or `Refused` was faster
`Release`  `Released`, or `Refused`
`Resume`   `Granted`, `Waiting` as above, or `Refused` with the code `lease_over`
`Renew`    `Renewed`, or `Refused` with the code `lease_over`
`End`      `Released`, or `Refused`
`Alive`    `Alive`
`Report`   nothing, whatever becomes of it
=========  ====================================================================

Who shows an issuer's token may say `Alive` and these, one at a time, and nobody else may:

=============  ================================================================
`IssueToken`   `TokenIssued`, or `Refused`
`RevokeToken`  `TokensRevoked`, or `Refused`
`ListTokens`   `TokenList`, or `Refused`
=============  ================================================================

Over a unix socket `Granted` carries one file descriptor, the lease lock (see `lease_lock`). The client, the
program under the lease and its launcher keep it open: the lease lasts as long as one of them has it. A
reservation has none: it has a time to live, and whoever uses it comes with `Resume` for the descriptor.

Over the network nothing is passed: a lease lasts as long as its client is heard, see `Welcome`. A request
that waits there keeps its position as long, and is come back to with `Resume`, too.

A request or lease that somebody else ended is told with `Refused`, code `ended`, without being asked. Over
the network its share is free with the client's `Release`, or `closed_s` later.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.ledger.entries import PROCESS
from bitfusion_pool.messages.message import Message, lines_of
from bitfusion_pool.messages.pool_values import NO_UNITS

if TYPE_CHECKING:
    from bitfusion_client.request.gpu_request import GpuRequest

SEGMENTS = range(744, 1000)  # bytes: less than any proxy announces, and than any router lowers it to


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """Who speaks.

    Attributes:
        protocol: The version it speaks.
        program: Its name and version, for the service's log.
        token: Who it is; empty on a unix socket.
        segment: The maximum segment size that its own machine announced when it connected, one of `SEGMENTS`:
            the service sees by it whether the connection is the client's own
            (`service/connections/route.py`). 0: not told.
    """

    TYPE = "hello"
    protocol: int
    program: str = ""
    token: str = ""
    segment: int = 0


@dataclass(frozen=True, slots=True)
class Look(Message):
    """Asks for the whole pool as it is now."""

    TYPE = "look"


@dataclass(frozen=True, slots=True)
class Acquire(Message):
    """Asks for GPUs. A connection has one such request at a time.

    Who asks is not said here: the service knows the user, by the socket or by the token.

    Attributes:
        request: What is wanted.
        kind: PROCESS or RESERVED, as in the ledger.
        label: For people: the notebook or the program.
        pid: For people: as the client sees it.
        host: For people: where the client runs. Both count only over the network.
        inside: The ids of the leases under which the client itself runs, separated by blanks, the innermost
            last; "" if it runs under none.
        wait: Whether it may wait for its turn.
    """

    TYPE = "acquire"
    request: GpuRequest
    kind: str = PROCESS
    label: str = ""
    pid: int = 0
    host: str = ""
    inside: str = ""
    wait: bool = True


@dataclass(frozen=True, slots=True)
class Cancel(Message):
    """Leaves the queue, and ends the use of reservations. The end of a unix connection does so, too."""

    TYPE = "cancel"


@dataclass(frozen=True, slots=True)
class Release(Message):
    """Ends a lease. The client closes its descriptor first; what others still use ends with them."""

    TYPE = "release"
    lease: str
    secret: str


@dataclass(frozen=True, slots=True)
class Resume(Message):
    """Comes back to a lease or a place in the queue after a lost connection, or to use a reservation.

    Over the network it takes it from the connection that has it, which is told so (code `replaced`).
    `inside` is as in `Acquire`, for a request that waits.
    """

    TYPE = "resume"
    lease: str
    secret: str
    inside: str = ""


@dataclass(frozen=True, slots=True)
class Renew(Message):
    """Lets a reservation live its whole time from now."""

    TYPE = "renew"
    lease: str
    secret: str


@dataclass(frozen=True, slots=True)
class End(Message):
    """Ends an own lease or request by its id, or, for an administrator, anybody's."""

    TYPE = "end"
    entry: str


@dataclass(frozen=True, slots=True)
class Alive(Message):
    """The client lives; the service answers with the same."""

    TYPE = "alive"


@dataclass(frozen=True, slots=True)
class Report(Message):
    """Says what the kernel under an own lease or request does; see `kernel_state.activity`.

    A service before this message passes over it. Times are told as ages: clocks of machines differ.

    Attributes:
        lease: The lease, or the request that waits.
        secret: Of that.
        state: What it does; empty: not known any more.
        for_s: Since so many seconds.
        idle_s: For so long it has computed nothing; -1: it is not idle.
        notebook: Which document it is of, for people.
    """

    TYPE = "report"
    lease: str
    secret: str
    state: str = ""
    for_s: float = 0.0
    idle_s: float = -1.0
    notebook: str = ""


@dataclass(frozen=True, slots=True)
class IssueToken(Message):
    """Asks for a token for a name below the issuer's.

    Attributes:
        name: What comes after the issuer's name and a slash.
        life_s: How long it lasts, in seconds; 0: as long as the issuer may say.
        renew: Whether the name may have a token already; that one stays good until its own end.
        keep: The id of the token of that name that is in use; see `access.issued_tokens`.
        gpus, share, leases, waiting: Limits of the name; 0: as the issuer's bounds are.
        units: The same in hundredths of a GPU, where 0 is a limit; -1: as the issuer's bounds are. A service
            before this limit passes over it: the answer says what the name has got.
        lower: Whether limits above the issuer's bounds are lowered to them; they are refused otherwise.
    """

    TYPE = "issue_token"
    name: str
    life_s: float = 0.0
    renew: bool = False
    keep: str = ""
    gpus: int = 0
    share: float = 0.0
    leases: int = 0
    waiting: int = 0
    units: int = NO_UNITS
    lower: bool = False


@dataclass(frozen=True, slots=True)
class RevokeToken(Message):
    """Ends all tokens of a name below the issuer's."""

    TYPE = "revoke_token"
    name: str


@dataclass(frozen=True, slots=True)
class ListTokens(Message):
    """Asks for the tokens in force that this issuer has issued, with the lowest ids above `after`."""

    TYPE = "list_tokens"
    after: str = ""


FROM_ISSUERS = (IssueToken, RevokeToken, ListTokens)
MESSAGES: tuple[type[Message], ...] = (
    *(Hello, Look, Acquire, Cancel, Release, Resume, Renew, End, Alive, Report),
    *FROM_ISSUERS,
)
_LINES = lines_of(MESSAGES)


def parse_from_client(line: bytes) -> Message | None:
    """The client's message in one line; None if its type is not known.

    Raises:
        InvalidMessage: The line is no message, or a field is missing or of a wrong type.
        InvalidRequest: `Acquire` asks for what is no request: the service refuses it in these words.
    """
    message: Message | None = _LINES.parse(line)
    return message
