"""Requests that came on shell: those queued in the proxy, in order, and those the kernel executes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from bitfusion_kernel.protocol.wire import Message

MOST = 10_000
"""Requests that may wait here: more than any notebook has cells."""

MOST_HELPERS = 100
"""Of them such as clients send for themselves; some poll."""

MOST_OVER = 1000
"""Cells that are over and whose replies would be second ones."""


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
        return self.is_execute and not self.is_helper and self.commands is None

    @property
    def is_silent(self) -> bool:
        """Whether it shows nothing, as code that clients send for themselves."""
        return bool(self.message.content.get("silent", False))

    @property
    def is_helper(self) -> bool:
        """Whether it runs code that nobody has typed: silent, or kept out of the history by an extension.

        Voilà keeps a notebook's own cells out of it; unlike JupyterLab's extensions it answers no `input()`.
        """
        without_history = self.message.content.get("store_history") is False and not self.is_unattended
        return self.is_execute and (self.is_silent or without_history)

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

    def has_room_for(self, request: QueuedRequest) -> bool:
        """Whether there are not too many of its kind."""
        if request.is_helper and sum(each.is_helper for each in self) >= MOST_HELPERS:
            return False
        return len(self) < MOST

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
    """Execute requests that the kernel has and has not answered: each shell runs its own in order.

    So a reply proves that what was sent before is over, too, answered or not: a kernel loses a reply when an
    interrupt hits it between two cells, when the reply can't be written as JSON, when a cell replaces the
    kernel's program (`os.execv`). Where no later reply would come, the proxy asks a question of its own on
    that shell: `asked`.
    """

    def __init__(self) -> None:
        self._shells: dict[str | None, dict[str, QueuedRequest | None]] = {}
        """By id; None is a question of the proxy's."""
        self._answered_early: set[str] = set()
        self._over: dict[str, None] = {}
        self._ambiguous: set[str] = set()
        """Ids that a client uses for several cells at once."""
        self.last_count = 0
        """The execution count of the newest cell that has been answered."""
        self.on_sent: Callable[[QueuedRequest], None] | None = None
        """Called with each cell that the kernel is sent, be it a silent one, where somebody has to know."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when it has been sent one, or has answered one."""

    def runs(self, subshell: str | None) -> bool:
        """Whether a shell has some."""
        return self.head(subshell) is not None

    @property
    def shells(self) -> list[str | None]:
        """The shells that have some."""
        return list(filter(self.runs, self._shells))

    def unsure(self, since: float) -> list[str | None]:
        """The shells whose last request came before `since`, and behind which nothing was asked."""
        if not self._shells:
            return []  # nearly always, on the way of each message
        last = {shell: next(reversed(requests.values())) for shell, requests in self._shells.items()}
        return [shell for shell, each in last.items() if each is not None and each.arrived_at < since]

    def has_asked(self, subshell: str | None) -> bool:
        """Whether the last that a shell has got is a question, so that a reply will come."""
        return next(reversed(self._shells.get(subshell, {"": None}).values())) is None

    def asked(self, question_id: str, subshell: str | None) -> None:
        """The proxy has asked a shell something, behind all that it has been sent."""
        self._shells.setdefault(subshell, {})[question_id] = None

    def sent(self, request: QueuedRequest) -> None:
        """One request has gone to the kernel."""
        if request.is_execute:
            requests = self._shells.setdefault(request.subshell, {})
            if request.message.id in requests:
                self._ambiguous.add(request.message.id)
            requests[request.message.id] = request
            self._over.pop(request.message.id, None)
        if request.answered:
            self._answered_early.add(request.message.id)
        if self.on_sent is not None and request.is_execute:
            self.on_sent(request)
        self.on_change()

    def answered(
        self, request_id: str, count: object = None
    ) -> tuple[QueuedRequest | None, list[QueuedRequest]]:
        """The kernel has answered a request or a question; `count` is the cell's execution count, if any.

        Returns the request, None if it is not tracked here, and those whose replies are lost.
        """
        if isinstance(count, int):
            self.last_count = count
        for subshell, requests in self._shells.items():
            if request_id in requests:
                earlier = list(requests)[: list(requests).index(request_id)]
                lost = [each for each in map(requests.pop, earlier) if each is not None]
                request = requests.pop(request_id)
                if not requests:
                    del self._shells[subshell]
                self._over |= dict.fromkeys({*earlier, request_id} - self._ambiguous)
                while len(self._over) > MOST_OVER:
                    del self._over[next(iter(self._over))]
                self.on_change()
                return request, lost
        return None, []

    def is_over(self, request_id: str) -> bool:
        """Whether a cell has been answered, or told that its reply is lost."""
        return request_id in self._over

    def clear(self) -> list[QueuedRequest]:
        """The kernel is gone; what it has not answered."""
        left = [each for requests in self._shells.values() for each in requests.values() if each is not None]
        left = [each for each in left if each.message.id not in self._answered_early]
        self._shells.clear()
        self._answered_early.clear()
        self.last_count = 0
        self.on_change()
        return left

    def head(self, subshell: str | None) -> str | None:
        """Id of the request that a shell runs or is about to run; None if it has none."""
        requests = self._shells.get(subshell, {})
        return next((name for name, request in requests.items() if request is not None), None)

    def running(self) -> list[QueuedRequest]:
        """The cell that runs in each shell, or is about to, behind code that a client runs for itself."""
        visible = (
            [each for each in requests.values() if each is not None and not each.is_helper]
            for requests in self._shells.values()
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
