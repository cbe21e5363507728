"""The queue position of a waiting entry, and the waiting line that shows it."""

from __future__ import annotations

import time

from bitfusion_client.command.client_output import MOST_NAMED, format_waiting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.ledger.entries import size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.inventory.nvidia.device_use import UseByDevice
    from bitfusion_pool.ledger.entries import Entry

OVERTAKEN = (
    "you hold or wait for GPUs of this pool already, and others who have less are served first, "
    "also if they came up to half an hour later"
)


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a waiting entry is among those that compete for the same servers.

    The order of the queue knows the first five; `Queue.position` adds the others.

    Attributes:
        position: 1 is next.
        length: How many compete, this one included.
        before: The first MOST_NAMED entries that are served before this one.
        directly_before: The entry that is served directly before this one, if there is one.
        overtaken: Whether one that came later is served before it.
        holding: The entries that hold GPUs of these servers, the longest first.
        inside: The ids of the leases under which the waiting command itself runs, separated by blanks, the
            innermost last; "" if it runs under none.
        why: Why it waits, where the holders do not explain it; else "".
        blocked: What it waits for in vain: GPUs that the command keeps which waits for them; else "".
    """

    position: int
    length: int
    before: tuple[Entry, ...]
    directly_before: tuple[Entry, ...]
    overtaken: bool = False
    holding: tuple[Entry, ...] = ()
    inside: str = ""
    why: str = ""
    blocked: str = ""

    def explained(self, holding: Sequence[Entry], inside: str, why: str, blocked: str) -> QueuePosition:
        """The same position with who holds the GPUs, and why it waits."""
        order = self.position, self.length, self.before, self.directly_before, self.overtaken
        return QueuePosition(*order, tuple(holding), inside, why, blocked)

    @property
    def ahead(self) -> int:
        """How many hold GPUs or wait before this one."""
        return len(self.holding) + self.position - 1

    def shown(self) -> object:
        """What of it people see, apart from the times: it is reported again when this changes."""
        named = [entry.entry_id for entry in (*self.holding[:MOST_NAMED], *self.before)]
        return self.position, self.length, self.ahead, named, self.why

    def text(self) -> str:
        """The message of the client's waiting line, with times as one says them now."""
        now = time.time()
        return format_waiting(
            self.position,
            self.length,
            [self._holder(entry, now) for entry in self.holding[:MOST_NAMED]],
            len(self.holding),
            [entry.summary(now) for entry in self.before],
            self.position - 1,
            self.why,
        )

    def _holder(self, entry: Entry, now: float) -> str:
        summary = entry.summary(now)
        return f"{surrounding(entry)}: {summary}" if entry.entry_id in self.inside.split() else summary


def surrounding(entry: Entry) -> str:
    """What a command that runs under this lease calls its holder."""
    is_notebook = entry.holder.label.endswith(".ipynb")
    return "this notebook" if is_notebook else "the program that runs this command"


def blocked_by_own(own: Sequence[Entry]) -> str:
    """The `blocked` of a command that runs under these leases, and can't be served while they last."""
    held = " and ".join(f"{surrounding(entry)} holds {size_text(entry.request)}" for entry in own)
    return f"{held} itself and keeps it while this command waits"


ASK_FOR_LESS = ": ask for less, or stop this command and run it elsewhere"
"""What follows it in the `why` of who waits nevertheless."""


def kept_in_order(request: GpuRequest) -> str:
    """The `why` of a request for which there is room, but others came before it."""
    return (
        f"there is room for {size_text(request)}, but those before you are served first, "
        "so that large requests get a turn"
    )


def used_outside(servers: Sequence[str], use: UseByDevice) -> str:
    """The `why` of a request for real devices that others than the pool use; empty if nobody does."""
    found = [
        f"GPU {number}: {one.text()}" for (key, number), one in use.items() if key in servers and one.text()
    ]
    return ", ".join(found) + ", ask for less than whole GPUs, or wait" if found else ""
