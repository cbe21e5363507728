"""Requests that came on shell: those queued in the proxy, in order, and those the kernel executes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

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
    def is_unattended(self) -> bool:
        """Whether its client has nobody to ask for input, as nbclient, papermill and nbconvert."""
        return self.message.content.get("allow_stdin") is False

    @property
    def stops_on_error(self) -> bool:
        """Whether cells queued behind it are aborted when it fails."""
        return bool(self.message.content.get("stop_on_error", True))

    @property
    def subshell(self) -> str | None:
        """The subshell it runs in, beside the cells of other shells; None for the main shell.

        JupyterLab sends null for the main shell.
        """
        subshell = self.message.header.get("subshell_id")
        return None if subshell is None else str(subshell)


class RequestQueue:
    """Requests that have not gone to the kernel yet: for each shell a queue in order of arrival."""

    def __init__(self) -> None:
        self._shells: dict[str | None, deque[QueuedRequest]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._shells.values()))

    def __contains__(self, request: QueuedRequest) -> bool:
        return request in self._shells.get(request.subshell, ())

    def __iter__(self) -> Iterator[QueuedRequest]:
        """All, oldest first; the queue must not change meanwhile."""
        if len(self._shells) < 2:
            return (request for queue in self._shells.values() for request in queue)
        import heapq  # few kernels have subshells

        return heapq.merge(*self._shells.values(), key=lambda request: request.arrived_at)

    @property
    def subshells(self) -> list[str | None]:
        """The shells that have requests here."""
        return list(self._shells)

    def append(self, request: QueuedRequest) -> None:
        """Add one at the end."""
        self._shells.setdefault(request.subshell, deque()).append(request)

    def first(self, subshell: str | None) -> QueuedRequest | None:
        """The oldest of one shell, which stays in the queue."""
        requests = self._shells.get(subshell)
        return requests[0] if requests else None

    def last(self, subshell: str | None) -> QueuedRequest | None:
        """The newest of one shell, which stays in the queue."""
        requests = self._shells.get(subshell)
        return requests[-1] if requests else None

    def first_where(self, wanted: Callable[[QueuedRequest], bool]) -> QueuedRequest | None:
        """The oldest of a kind, which stays in the queue."""
        return next(filter(wanted, self), None)

    def remove(self, request: QueuedRequest) -> None:
        """Take one out of the queue."""
        requests = self._shells[request.subshell]
        requests.remove(request)
        if not requests:
            del self._shells[request.subshell]

    def take_where(self, wanted: Callable[[QueuedRequest], bool]) -> list[QueuedRequest]:
        """Take all of a kind out of the queue, in order."""
        taken: list[QueuedRequest] = []
        kept: list[QueuedRequest] = []
        for request in self:
            (taken if wanted(request) else kept).append(request)
        self._shells.clear()
        for request in kept:
            self.append(request)
        return taken


class RequestsInKernel:
    """Execute requests that the kernel has and has not answered: each shell runs its own in order."""

    def __init__(self) -> None:
        self._shells: dict[str | None, dict[str, QueuedRequest]] = {}
        self._answered_early: set[str] = set()
        self.last_count = 0
        """The execution count of the newest cell that has been answered."""
        self.on_sent: Callable[[QueuedRequest], None] | None = None
        """Called with each cell that the kernel is sent, be it a silent one, where somebody has to know."""

    def runs(self, subshell: str | None) -> bool:
        """Whether a shell has some."""
        return subshell in self._shells

    def sent(self, request: QueuedRequest) -> None:
        """One request has gone to the kernel."""
        if request.is_execute:
            self._shells.setdefault(request.subshell, {})[request.message.id] = request
        if request.answered:
            self._answered_early.add(request.message.id)
        if self.on_sent is not None and request.is_execute:
            self.on_sent(request)

    def answered(self, request_id: str, count: object = None) -> QueuedRequest | None:
        """The kernel has answered one, which has this execution count; None if it is not tracked here."""
        if isinstance(count, int):
            self.last_count = count
        for subshell, requests in self._shells.items():
            if request_id in requests:
                request = requests.pop(request_id)
                if not requests:
                    del self._shells[subshell]
                return request
        return None

    def head(self, subshell: str | None) -> str | None:
        """Id of the request that a shell runs or is about to run; None if it has none."""
        return next(iter(self._shells.get(subshell, ())), None)

    def running(self) -> list[QueuedRequest]:
        """The cell that runs in each shell, unless it is a silent one that runs before it."""
        visible = (
            [each for each in requests.values() if not each.is_silent] for requests in self._shells.values()
        )
        return [cells[0] for cells in visible if cells]

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
