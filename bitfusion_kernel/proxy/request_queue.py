"""The cells and other shell messages a proxy keeps in order, and what has gone to the kernel. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bitfusion_kernel.protocol.wire import Message


class QueuedRequest:
    """One shell message in line. `commands`: the lines of a `%bitfusion` cell."""

    __slots__ = ("announced", "answered", "arrived_at", "commands", "message")

    def __init__(self, message: Message, arrived_at: float, commands: list[str] | None = None) -> None:
        self.message = message
        self.arrived_at = arrived_at
        self.commands = commands
        self.announced = False
        """Whether the proxy has said `busy` for it; a cell that gets its kernel soon is the kernel's."""
        self.answered = False

    @property
    def is_execute(self) -> bool:
        """Whether it runs code, seen or silent."""
        return self.message.type == "execute_request"

    @property
    def is_cell(self) -> bool:
        """Whether it is a cell for the kernel that somebody sees: such a cell asks for the GPU."""
        return self.is_execute and not self.is_silent and self.commands is None

    @property
    def is_silent(self) -> bool:
        """Code that shows nothing, as clients send for themselves."""
        return bool(self.message.content.get("silent", False))

    @property
    def stops_on_error(self) -> bool:
        """Whether cells queued behind it are aborted when it fails."""
        return bool(self.message.content.get("stop_on_error", True))


class RequestQueue:
    """Messages in order of arrival that have not gone to the kernel yet."""

    def __init__(self) -> None:
        self._entries: deque[QueuedRequest] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[QueuedRequest]:
        """All, oldest first."""
        return list(self._entries)

    def append(self, entry: QueuedRequest) -> None:
        """At the end."""
        self._entries.append(entry)

    def pop(self) -> QueuedRequest:
        """The oldest."""
        return self._entries.popleft()

    @property
    def first(self) -> QueuedRequest | None:
        """The oldest, still in line."""
        return self._entries[0] if self._entries else None

    def first_where(self, wanted: Callable[[QueuedRequest], bool]) -> QueuedRequest | None:
        """The oldest of a kind."""
        return next((entry for entry in self._entries if wanted(entry)), None)

    def remove(self, entry: QueuedRequest) -> None:
        """Take one out of the line."""
        self._entries.remove(entry)

    def take_where(self, wanted: Callable[[QueuedRequest], bool]) -> list[QueuedRequest]:
        """Take all of a kind out of the line, in order."""
        taken = [entry for entry in self._entries if wanted(entry)]
        self._entries = deque(entry for entry in self._entries if not wanted(entry))
        return taken


class RequestsInKernel:
    """Execute requests that the kernel has and has not answered, oldest first: it runs them in order."""

    def __init__(self) -> None:
        self._sent: dict[str, QueuedRequest] = {}

    def __bool__(self) -> bool:
        return bool(self._sent)

    def sent(self, entry: QueuedRequest) -> None:
        """One has gone to the kernel."""
        self._sent[entry.message.id] = entry

    def answered(self, message_id: str) -> QueuedRequest | None:
        """The kernel has answered one; None if it was not ours to track."""
        return self._sent.pop(message_id, None)

    def take_all(self) -> list[QueuedRequest]:
        """All that will never be answered, because the kernel is gone."""
        entries = list(self._sent.values())
        self._sent.clear()
        return entries
