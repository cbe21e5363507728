"""What a service says to its clients; `from_client` has what each answers."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.messages.from_client import Alive
from bitfusion_pool.messages.message import LONGEST_FROM_SERVICE, Message, encoded_size, lines_of
from bitfusion_pool.messages.pool_values import IssuedToken, entry_to_json

if TYPE_CHECKING:
    from bitfusion_pool.inventory.nvidia.device_use import UsedDevice
    from bitfusion_pool.inventory.placement import Share
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry

# whether something between client and service ends connections, and makes others: a proxy, a load balancer
LOCAL, DIRECT, INDIRECT = ROUTES = "local", "direct", "indirect"


@dataclass(frozen=True, slots=True)
class Welcome(Message):
    """The service takes this client.

    Attributes:
        protocol: The version it speaks.
        pool: Its name for people.
        client_id: The uuid by which the servers know this user.
        simulated: Whether any GPU is simulated.
        servers: The servers as they are now.
        emulation: The emulation settings as ``name=value,name=value``; see `inventory.emulation`.
        closed_s: How long a remote lease outlives its connection that the client's own machine has ended, in
            seconds.
        silent_s: How long a remote lease outlives the last word of its client.
        heartbeat_s: How often a client that holds a remote lease says `Alive`.
        token_expires_at: When the client's token ends, in seconds since the epoch; 0 where it needs none.
        software: The version of the package that the service runs, for people; empty where it doesn't say so.
        token_created_at: When the client's token was made; 0 where it needs none, or the service doesn't say.
        route: Of this connection, one of `ROUTES`; empty from a service that takes every end of a connection
            for the client's own.
    """

    TYPE = "welcome"
    protocol: int
    pool: str
    client_id: str
    simulated: bool
    servers: tuple[Server, ...]
    emulation: str = ""
    closed_s: float = 15.0
    silent_s: float = 120.0
    heartbeat_s: float = 5.0
    token_expires_at: float = 0.0
    software: str = ""
    token_created_at: float = 0.0
    route: str = ""


@dataclass(frozen=True, slots=True)
class Refused(Message):
    """Something is not done: `code` is one of `refusal_codes`, `message` and `next_step` are for people."""

    TYPE = "refused"
    code: str
    message: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class PoolSnapshot(Message):
    """The pool at one moment; `format_snapshot` makes one that fits.

    Attributes:
        taken_at: Seconds since the epoch.
        clock: The same moment by the clock of the entries' `expires_at`.
        servers: The servers, in the order of the configuration.
        entries: Leases, then requests that wait in the order in which they are served: the queue positions
            follow from it.
        left_out: How many more entries there are, all after those in `entries`.
        free: Free MiB of every device; negative where a device shrank below what is leased of it.
        emulation: As in `Welcome`.
        use: What is known of real devices besides their leases.
    """

    TYPE = "snapshot"
    taken_at: float
    clock: float
    servers: tuple[Server, ...]
    entries: tuple[Entry, ...]
    left_out: int
    free: tuple[Share, ...]
    emulation: str = ""
    use: tuple[UsedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting(Message):
    """The request waits: sent at once, when something in it changes, and every ten seconds.

    `text` is the waiting line, all that the commands read of the place. `position` 1 is next, `length` is how
    many compete for the same servers: clients of an earlier version take no message without both.
    `blocked` says what it waits for in vain, in which case its client may prefer not to wait; mostly empty.
    `entry` and `secret` name the request: `Resume` comes back to its place after a lost connection (on a unix
    socket, where a connection ends with its client, only after that of the service).
    """

    TYPE = "waiting"
    position: int
    length: int
    text: str
    entry: str = ""
    secret: str = ""
    blocked: str = ""


@dataclass(frozen=True, slots=True)
class Granted(Message):
    """The client holds these GPUs.

    Attributes:
        entry: The lease; its id names it, for everybody.
        server: The server in which all its GPUs are.
        secret: Proves to the service, also after a restart, that somebody is the lease's holder.
    """

    TYPE = "granted"
    entry: Entry
    server: Server
    secret: str


@dataclass(frozen=True, slots=True)
class Released(Message):
    """The lease or request is over.

    Attributes:
        lease: Its id; empty where nothing waited any more that could be cancelled.
        in_use: Whether processes still hold its lock: it ends with the last of them.
    """

    TYPE = "released"
    lease: str
    in_use: bool = False


@dataclass(frozen=True, slots=True)
class Renewed(Message):
    """The reservation lives on for its whole time."""

    TYPE = "renewed"
    lease: str


@dataclass(frozen=True, slots=True)
class TokenIssued(Message):
    """A new token, told this once: `token` is its text, `row` what is kept of it."""

    TYPE = "token_issued"
    token: str
    row: IssuedToken


@dataclass(frozen=True, slots=True)
class TokensRevoked(Message):
    """So many tokens of the whole `name` have been ended by this; maybe none was in force."""

    TYPE = "tokens_revoked"
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class TokenList(Message):
    """Tokens in force that this issuer has issued, by id; `more`: ask again, after the last of these."""

    TYPE = "token_list"
    tokens: tuple[IssuedToken, ...]
    more: bool = False


MESSAGES: tuple[type[Message], ...] = (
    *(Welcome, Refused, PoolSnapshot, Waiting, Granted, Released, Renewed),
    *(TokenIssued, TokensRevoked, TokenList),
    Alive,
)
_ROOM_FOR_LEFT_OUT = 16  # bytes: digits that `left_out` may gain
_LINES = lines_of(MESSAGES)


def parse_from_service(line: bytes) -> Message | None:
    """The service's message in one line; None if its type is not known. Raises InvalidMessage."""
    message: Message | None = _LINES.parse(line)
    return message


def format_snapshot(snapshot: PoolSnapshot, longest: int = LONGEST_FROM_SERVICE) -> bytes:
    """The message as one line of at most `longest` bytes; entries at the end are left out for that.

    Servers that fill it alone are not cut: who configures a service checks that they fit.
    """
    line = snapshot.format()
    if len(line) <= longest:
        return line
    entries = list(snapshot.entries)
    size = len(line)
    while entries and size > longest - _ROOM_FOR_LEFT_OUT:
        size -= encoded_size(entry_to_json(entries.pop())) + len(",")
    left_out = snapshot.left_out + len(snapshot.entries) - len(entries)
    taken = snapshot.taken_at, snapshot.clock, snapshot.servers
    rest = snapshot.free, snapshot.emulation, snapshot.use
    return PoolSnapshot(*taken, tuple(entries), left_out, *rest).format()
