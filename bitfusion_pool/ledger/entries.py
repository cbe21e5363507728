"""An entry of the ledger (a request that waits or a lease) and its holder, as values."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.request.gpu_request import GpuRequest

if TYPE_CHECKING:
    from bitfusion_client.kernel_state.activity import KernelActivity
    from bitfusion_pool.inventory.placement import Share

# the states of an entry
WAITING = "waiting"
HELD = "held"

# the kinds of entries, by what proves that their holder lives
PROCESS = "process"  # its lease lock
RESERVED = "reserved"  # of request_gpus: its time to live, or the lease lock of clients that use it
REMOTE = "remote"  # nothing here: the service hears its client on another machine, and ends it

NO_USER = -1
FIRST_TOKEN_NAME = -2  # such names have numbers below those of users, counted downwards


@dataclass(frozen=True, slots=True)
class Holder:
    """Who made the request, for people to read; it proves nothing. `pid` is the one the holder sees."""

    label: str
    user: str
    pid: int = 0
    host: str = ""
    uid: int = NO_USER

    @property
    def is_remote(self) -> bool:
        """Whether it is the name of a token, not a user of this machine."""
        return self.uid <= FIRST_TOKEN_NAME


@dataclass(frozen=True, slots=True)
class Entry:
    """A request in the ledger.

    `number` increases over the life of the ledger and is the order of the queue. `servers` are the keys of
    the servers that could serve the request. Times are in seconds since the epoch, but `expires_at` by
    `liveness.clock`; it is None where the lease lock alone decides. `activity` is what the kernel under it
    does; None where that is not known, or was not asked.
    """

    number: int
    entry_id: str
    state: str
    kind: str
    request: GpuRequest
    holder: Holder
    servers: tuple[str, ...]
    requested_at: float
    granted_at: float | None
    expires_at: float | None
    shares: tuple[Share, ...] = ()
    activity: KernelActivity | None = None

    def summary(self, now: float) -> str:
        """How others see this entry: ``root: digits.ipynb (1 GPU × 50 %, since 14:03)``."""
        from bitfusion_client.clock_time import clock_time

        size, since = size_text(self.request), clock_time(self.granted_at or self.requested_at, now)
        return f"{self.holder.user}: {self.holder.label} ({size}, since {since})"


def size_text(request: GpuRequest) -> str:
    """The size without filters and servers: ``1 GPU × 50 %``."""
    partial = None if request.partial == 1 else request.partial
    return GpuRequest(request.gpus, partial, request.memory_mib).describe()
