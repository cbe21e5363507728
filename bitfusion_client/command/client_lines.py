"""The kinds of lines that `bitfusion run` prints: waiting, requesting, locked, released, fatal errors.

`client_output.parse_line` makes them. Wording as logged by clients 2.5.0, 3.0.0 and 4.0.0; `Waiting`,
`OutOfReach`, `BackInReach` and `PoolLost` are the embedded pool's own.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `text` is all of it without the line end."""

    text: str


@dataclass(frozen=True, slots=True)
class LogLine(Line):
    """``[LEVEL] time message``. Level and time are "" where the line had no such prefix."""

    level: str
    time: str


@dataclass(frozen=True, slots=True)
class Unknown(LogLine):
    """A line of none of the known kinds; log lines keep their level and time."""


@dataclass(frozen=True, slots=True)
class ClaimingClient(LogLine):
    """First contact of client 4.0: it tells a server who it is."""

    server: str
    client_id: str


@dataclass(frozen=True, slots=True)
class QueryServer(LogLine):
    """``Query server … gpu availability``, or the health query, whose `server` is ""."""

    server: str


@dataclass(frozen=True, slots=True)
class ContactFailed(LogLine):
    """A server did not answer; the client goes on with the next one."""

    server: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChoosingServers(LogLine):
    """The servers that the client chooses GPUs from."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Requesting(LogLine):
    """The GPUs it asks a server for: `server_index` in the server list, memory of each GPU."""

    gpu_ids: tuple[int, ...]
    memory_mib: int
    server_index: int
    version: str


@dataclass(frozen=True, slots=True)
class RequestedResources(Line):
    """Header of the server list and the idle timeout, which the client prints without level and time."""


@dataclass(frozen=True, slots=True)
class ServerList(Line):
    """``Server List:`` of the allocation."""

    servers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IdleTimeout(Line):
    """``Client idle timeout: 0 min``; 0 means none."""

    minutes: int


@dataclass(frozen=True, slots=True)
class Locked(LogLine):
    """The client has the GPUs. `partial` is the share of each; `lock_file` names the allocation."""

    gpus: int
    partial: float
    lock_file: str


@dataclass(frozen=True, slots=True)
class RunningCommand(LogLine):
    """The program starts. `command` is its words joined by blanks, without their quotes."""

    command: str
    gpus: int


@dataclass(frozen=True, slots=True)
class ServerLine(LogLine):
    """The server of the GPUs: ``ip dispatcherport uuid srsport version``."""

    host: str
    dispatcher_port: int
    uuid: str
    srs_port: int
    version: str


@dataclass(frozen=True, slots=True)
class TelemetryStarted(LogLine):
    """Client 4.0 starts a telemetry process beside the program."""

    client_id: str
    server: str


@dataclass(frozen=True, slots=True)
class Waiting(LogLine):
    """It waits for GPUs. Embedded pool and GPU pods only.

    Attributes:
        queue_position: 1 is next; None where nobody knows: a Kubernetes scheduler has no order.
        queue_length: How many wait, this one included; None likewise.
        held_by: Who holds GPUs that could serve the request; the last may be ``3 more``.
        before: Who waits before it, in the same form.
        why: Why it waits, where that cannot be seen from the others; else "".
    """

    queue_position: int | None
    queue_length: int | None
    held_by: tuple[str, ...]
    before: tuple[str, ...]
    why: str

    @property
    def standing(self) -> str:
        """``position 1 of 2``; empty where nobody knows."""
        known = self.queue_position is not None
        return f"position {self.queue_position} of {self.queue_length}" if known else ""


@dataclass(frozen=True, slots=True)
class OutOfReach(LogLine):
    """A pool on the network does not answer; the client goes on trying. Embedded pool only.

    Attributes:
        pool: ``host:port``.
        reason: What the client has noticed.
        ends_in_s: Seconds from this line to the program's end, unless the pool comes back; None without one.
    """

    pool: str
    reason: str
    ends_in_s: int | None


@dataclass(frozen=True, slots=True)
class BackInReach(LogLine):
    """The pool answers again, after so many `seconds`. Embedded pool only."""

    pool: str
    seconds: int


@dataclass(frozen=True, slots=True)
class Note(LogLine):
    """What a person should know of the GPUs that were just given: the cell says it. GPU pods only.

    `note` is one sentence or two.
    """

    note: str


@dataclass(frozen=True, slots=True)
class Releasing(LogLine):
    """The program has ended, the GPUs are being given back."""

    lock_file: str


@dataclass(frozen=True, slots=True)
class Released(LogLine):
    """The GPUs are given back."""

    servers: int
    lock_file: str


@dataclass(frozen=True, slots=True)
class FatalError(Line):
    """``Error: …``, after which the client ends. `problem` is the text after it."""

    problem: str


@dataclass(frozen=True, slots=True)
class PoolLost(FatalError):
    """The fatal error of a client that has ended its program because its pool stayed out of reach.

    Embedded pool only. `seconds`: for how long.
    """

    pool: str
    seconds: int


@dataclass(frozen=True, slots=True)
class PodEnded(FatalError):
    """The fatal error of a client whose program's pod has ended. GPU pods only."""


@dataclass(frozen=True, slots=True)
class TokenExpiredLine(Line):
    """``Token expired at: …``; `expiry` is as the client wrote it."""

    expiry: str
