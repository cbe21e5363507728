"""Waiting in the queue until a request is granted, and reporting the queue position meanwhile."""

from __future__ import annotations

import time

from bitfusion_client.errors import ClientFailed, WaitTimedOut
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.ledger.entries import HELD
from bitfusion_pool.ledger.files.wake_up import WakeUp

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.ledger.entries import Entry
    from bitfusion_pool.ledger.ledger import Ledger
    from bitfusion_pool.ledger.queue.queue_position import QueuePosition

DEFAULT_TIMEOUT_S = 1800.0  # 30m, as the real client has it
FIRST_PAUSE_S = 0.02
REFRESH_S = 10.0  # how often a waiter looks at everything, and reports its position again
FRONT = 4  # so many in front watch all that are ahead of them


def pause(position: int) -> float:
    """Seconds until a waiter at this position looks again although nobody woke it.

    Those in front notice by this that a holder died, or a waiter before them. Further behind it is a safety
    net and refreshes what they show: whoever gets its turn is woken.
    """
    if position <= 1:
        return FIRST_PAUSE_S
    return 0.1 if position <= FRONT else min(REFRESH_S, 0.5 * position)


def watched(position: QueuePosition) -> tuple[Entry, ...]:
    """The entries whose death this waiter looks for: in front all that are ahead, behind only the next."""
    if position.position <= FRONT:
        return *position.holding, *position.before
    return position.directly_before


def wait_for_turn(
    ledger: Ledger,
    entry: Entry,
    timeout: float | None,
    on_position: Callable[[QueuePosition], None] | None = None,
    inside: str = "",
) -> Entry:
    """Wait until a waiting entry holds its GPUs. If the wait ends in any other way, the entry is released.

    Args:
        ledger: The ledger.
        entry: The entry, as `Ledger.submit` returned it.
        timeout: Seconds from now, None for the default.
        on_position: Called at once, when the position or the entries ahead change, and every ten seconds. An
            exception that it raises ends the wait.
        inside: See `QueuePosition`.

    Returns:
        The entry as it is once it holds GPUs.

    Raises:
        WaitTimedOut: The timeout is over.
        NeverSatisfiable: The pool was configured anew, and no server can serve the request any more.
        ClientFailed: Somebody ended the entry.
        PoolUnreadable: The pool's files cannot be used.
    """
    limit = DEFAULT_TIMEOUT_S if timeout is None else timeout
    deadline = time.monotonic() + limit
    wake_up = WakeUp(ledger.folder, entry.entry_id)
    try:
        wake_up.open()  # before the first look, so that no grant is missed
        return _wait(_View(ledger, entry, inside), wake_up, deadline, limit, on_position)
    except BaseException:
        ledger.release(entry.entry_id)
        raise
    finally:
        wake_up.close()


class _View:
    """What one waiter knows of the queue; reads the ledger again only after changes."""

    def __init__(self, ledger: Ledger, entry: Entry, inside: str) -> None:
        self.ledger = ledger
        self.entry = entry
        self._inside = inside
        self.position: QueuePosition | None = None
        self._seen = -1  # the change counter at the last look
        self._reap_at = time.monotonic() + REFRESH_S  # `submit` has just found the dead holders

    def update(self, now: float) -> QueuePosition | None:
        """The position in the queue; None once the entry holds GPUs."""
        if self._somebody_ahead_died() or (now >= self._reap_at and self._is_first()):
            self._reap_at = now + REFRESH_S
            self.ledger.reap()
            self.changed()
        # first the counter, then the data: a change between the two is seen next time
        counter = self.ledger.change_counter()
        if counter != self._seen or self.position is None:
            self._seen = counter
            self._look()
        return self.position

    def changed(self) -> None:
        """Look again at the next `update`; the change counter leaves out changes by this connection."""
        self._seen = -1

    def _look(self) -> None:
        entry = self.ledger.entry(self.entry.entry_id)
        if entry is None:
            raise ClientFailed(
                "",
                "somebody ended this request while it waited (bitfusion-pool reap --force)",
                "run the cell or the command again",
            )
        self.entry = entry
        if entry.state == HELD:
            self.position = None
            return
        if not entry.servers:
            from bitfusion_pool.inventory.refusals import never_satisfiable

            raise never_satisfiable(entry.request, self.ledger.servers)
        self.position = self.ledger.queue_position(self.entry, self._inside)

    def _is_first(self) -> bool:
        return self.position is not None and self.position.position == 1

    def _somebody_ahead_died(self) -> bool:
        return self.position is not None and not all(map(self.ledger.is_alive, watched(self.position)))


def _wait(
    view: _View,
    wake_up: WakeUp,
    deadline: float,
    limit: float,
    on_position: Callable[[QueuePosition], None] | None,
) -> Entry:
    reported: object = None
    report_at = 0.0
    while True:
        now = time.monotonic()
        position = view.update(now)
        if position is None:
            return view.entry
        if now >= deadline:
            raise timed_out(view.entry.request, limit)
        shown = position.shown()
        if on_position and (shown != reported or now >= report_at):
            reported, report_at = shown, now + REFRESH_S
            on_position(position)
        if wake_up.wait(min(pause(position.position), deadline - now)):
            view.changed()


def timed_out(request: GpuRequest, limit: float) -> WaitTimedOut:
    """The error for a wait of `limit` seconds that was in vain."""
    from bitfusion_client.request.durations import format_duration

    return WaitTimedOut(request, f"timed out after {format_duration(limit)} waiting for {request.gpus} GPUs")
