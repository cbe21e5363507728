"""The queue position of a waiting entry, and the waiting line that shows it."""

from __future__ import annotations

from bitfusion_client.client_output import format_waiting
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from bitfusion_pool.ledger.entries import Entry


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where a waiting entry is in the queue, as of the time `seen_at`.

    `position` 1 is next; `length` counts all that compete for the same servers, this one included. `ahead`:
    the entries that hold GPUs first, then those that wait before this one.
    """

    position: int
    length: int
    ahead: tuple[Entry, ...]
    seen_at: float

    def text(self) -> str:
        """The message of the client's waiting line."""
        return format_waiting(
            self.position, self.length, [entry.summary(self.seen_at) for entry in self.ahead]
        )
