"""Requests that came on shell: those queued in the proxy, in order, and those the kernel executes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bitfusion_kernel.protocol.wire import Message


class QueuedRequest:
    """One request on shell. `commands`: the lines of a `%bitfusion` cell."""

    __slots__ = ("announced", "answered", "arrived_at", "commands", "message")

    def __init__(self, message: Message, arrived_at: float, commands: list[str] | None = None) -> None:
        self.message = message
        self.arrived_at = arrived_at
        self.commands = commands
        self.announced = False
        """Whether the proxy has said `busy` for it; a cell that gets its kernel soon is the kernel's."""
        self.answered = False
        """Whether the proxy has replied to it already; it still goes to the kernel."""

    @property
    def is_execute(self) -> bool:
        """Whether it runs code, visible or silent."""
        return self.message.type == "execute_request"

    @property
    def is_cell(self) -> bool:
        """Whether it is a visible cell for the kernel: such a cell asks for the GPU."""
        return self.is_execute and not self.is_silent and self.commands is None

    @property
    def is_silent(self) -> bool:
        """Whether it shows nothing, as code that clients send for themselves."""
        return bool(self.message.content.get("silent", False))

    @property
    def stops_on_error(self) -> bool:
        """Whether cells queued behind it are aborted when it fails."""
        return bool(self.message.content.get("stop_on_error", True))

    @property
    def in_subshell(self) -> bool:
        """Whether it runs in a subshell, beside the cells and not in order with them."""
        return "subshell_id" in self.message.header


class RequestQueue:
    """Requests that have not gone to the kernel yet, in order of arrival."""

    def __init__(self) -> None:
        self._requests: deque[QueuedRequest] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def requests(self) -> list[QueuedRequest]:
        """All, oldest first."""
        return list(self._requests)

    def append(self, request: QueuedRequest) -> None:
        """Add one at the end."""
        self._requests.append(request)

    def pop(self) -> QueuedRequest:
        """Take the oldest out."""
        return self._requests.popleft()

    @property
    def first(self) -> QueuedRequest | None:
        """The oldest, which stays in the queue."""
        return self._requests[0] if self._requests else None

    def first_where(self, wanted: Callable[[QueuedRequest], bool]) -> QueuedRequest | None:
        """The oldest of a kind, which stays in the queue."""
        return next((request for request in self._requests if wanted(request)), None)

    def remove(self, request: QueuedRequest) -> None:
        """Take one out of the queue."""
        self._requests.remove(request)

    def take_where(self, wanted: Callable[[QueuedRequest], bool]) -> list[QueuedRequest]:
        """Take all of a kind out of the queue, in order."""
        taken = [request for request in self._requests if wanted(request)]
        self._requests = deque(request for request in self._requests if not wanted(request))
        return taken


class RequestsInKernel:
    """Execute requests that the kernel has and has not answered, oldest first: it runs them in order."""

    def __init__(self) -> None:
        self._sent: dict[str, QueuedRequest] = {}
        self._answered_early: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._sent)

    def sent(self, request: QueuedRequest) -> None:
        """One request has gone to the kernel."""
        if request.is_execute and not request.in_subshell:
            self._sent[request.message.id] = request
        if request.answered:
            self._answered_early.add(request.message.id)

    def answered(self, request_id: str) -> QueuedRequest | None:
        """The kernel has answered one; None if it is not tracked here."""
        return self._sent.pop(request_id, None)

    @property
    def some_answered_early(self) -> bool:
        """Whether the proxy has answered one already, so that the kernel's reply is not relayed."""
        return bool(self._answered_early)

    def take_answered_early(self, request_id: str) -> bool:
        """Whether the proxy has answered this one already; asked once, when the kernel's reply comes."""
        if request_id not in self._answered_early:
            return False
        self._answered_early.discard(request_id)
        return True

    def take_all(self) -> list[QueuedRequest]:
        """All that will never be answered, because the kernel is gone."""
        requests = list(self._sent.values())
        self._sent.clear()
        return requests
