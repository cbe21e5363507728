"""What the ledger writes down: one entry per request, first waiting, then held."""

from __future__ import annotations

from bitfusion_client.decimals import plain_number
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from bitfusion_client.request import GpuRequest
    from bitfusion_pool.inventory.placement import Share

WAITING = "waiting"
HELD = "held"

# how an entry shows that it is alive
PROCESS = "process"  # its file lock
RESERVED = "reserved"  # request_gpus: no process; a time to live, and the lock of clients that use it
REMOTE = "remote"  # a holder that shares no file system with us: a time to live it renews


@dataclass(frozen=True, slots=True)
class Holder:
    """Who asks, for people to read: nothing here proves anything. `pid` as the holder sees it."""

    label: str
    user: str
    pid: int = 0
    host: str = ""
    uid: int = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """A request in the ledger. Times are seconds since the epoch; `expires` is None for a file lock's life.

    `number` counts up over the ledger's life: the order in the queue. `servers` are those that could serve.
    """

    number: int
    entry_id: str
    state: str
    kind: str
    request: GpuRequest
    holder: Holder
    servers: tuple[str, ...]
    asked: float
    granted: float | None
    expires: float | None
    shares: tuple[Share, ...] = ()

    def who(self, now: float) -> str:
        """How others see this entry: ``root: digits.ipynb (1 GPUs, partial 0.5, 32s)``."""
        since = max(0, int(now - (self.granted or self.asked)))
        return f"{self.holder.user}: {self.holder.label} ({size_text(self.request)}, {short_duration(since)})"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a waiter stands: place 1 is next. `of` counts all who compete, itself included.

    `in_the_way`: holders first, then earlier waiters, all as they were at the time `seen`.
    """

    place: int
    of: int
    in_the_way: tuple[Entry, ...]
    seen: float

    def text(self) -> str:
        """The message of the waiting line."""
        from bitfusion_client.client_output import format_waiting  # a millisecond only waiters pay

        return format_waiting(self.place, self.of, [entry.who(self.seen) for entry in self.in_the_way])


def size_text(request: GpuRequest) -> str:
    """The size in the client's words: ``1 GPUs, partial 0.5``."""
    if request.memory_mib is not None:
        return f"{request.gpus} GPUs, {request.memory_mib} MiB"
    return f"{request.gpus} GPUs, partial {plain_number(request.partial or 1)}"


def short_duration(seconds: int) -> str:
    """Whole seconds as people say it: 32s, 4m5s, 3h2m."""
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60}m"
