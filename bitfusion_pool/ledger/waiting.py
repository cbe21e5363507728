"""Waiting in the queue for one's turn."""

from __future__ import annotations

import time

from bitfusion_client.errors import PoolUnreadable, WaitTimedOut
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.inventory.placement import never
from bitfusion_pool.ledger.entries import HELD, Entry, Standing
from bitfusion_pool.ledger.wake_up import Bell

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_pool.ledger.ledger import Ledger

DEFAULT_TIMEOUT_S = 1800.0  # the client's 30m
FIRST_PAUSE_S = 0.02  # the next in line asks this often whether a holder died
TELL_AGAIN_S = 10.0


def pause(place: int) -> float:
    """Seconds until a waiter looks again although nobody rang. Those behind only refresh what they show."""
    if place <= 1:
        return FIRST_PAUSE_S
    return 0.1 if place <= 4 else min(2.0, 0.05 * place)


def watched(standing: Standing) -> tuple[Entry, ...]:
    """Whose death this waiter looks out for: those in front all, the others only who stands before them."""
    return standing.in_the_way if standing.place <= 4 else standing.in_the_way[-1:]


def wait_for_turn(
    ledger: Ledger,
    entry: Entry,
    timeout: float | None,
    tell: Callable[[Standing], None] | None = None,
) -> Entry:
    """Wait until a waiting entry holds its GPUs; returns it as it is then.

    `timeout` in seconds from now, None for the default. `tell` is called at once, when the place or those
    ahead change, and every ten seconds. If anything else ends the wait, an exception of `tell` or a
    signal handler included, the ticket is given back. Raises WaitTimedOut, PoolUnreadable,
    NeverSatisfiable.
    """
    limit = DEFAULT_TIMEOUT_S if timeout is None else timeout
    deadline = time.monotonic() + limit
    bell = Bell(ledger.folder, entry.entry_id, ledger.mode)
    try:
        # looked at after the bell is there, so that no grant falls between
        return _wait(ledger, entry, deadline, limit, bell, tell)
    except BaseException:
        ledger.give_back(entry.entry_id)
        raise
    finally:
        bell.close()


def _wait(
    ledger: Ledger,
    entry: Entry,
    deadline: float,
    limit: float,
    bell: Bell,
    tell: Callable[[Standing], None] | None,
) -> Entry:
    version = -1
    standing = told = None
    next_tale = 0.0
    next_reap = 0.0
    while True:
        now = time.monotonic()
        if now >= next_reap or (standing and not all(map(ledger.is_alive, watched(standing)))):
            next_reap = now + TELL_AGAIN_S
            if ledger.reap():
                version = -1  # which tells of changes by others only
            version = -1  # it may have granted this very entry, and `version` counts others' changes only
        # first the version, then the data: a change between the two is seen next time
        found = ledger.version()
        if found != version or standing is None:
            version = found
            current = ledger.look(entry.entry_id)
            if current is None:
                raise PoolUnreadable("", f"pool ledger {ledger.folder} lost a waiting request")
            if current.state == HELD:
                return current
            if not current.servers:  # the pool was described anew meanwhile
                raise never(current.request, ledger.servers)
            standing = ledger.standing(current)
        if now >= deadline:
            raise _timed_out(entry, limit)
        shown = standing.place, standing.of, [one.entry_id for one in standing.in_the_way]
        if tell and (shown != told or now >= next_tale):
            if shown == told:
                standing = ledger.standing(entry)  # their times have moved on
            told, next_tale = shown, now + TELL_AGAIN_S
            tell(standing)
        if bell.wait(min(pause(standing.place), deadline - now)):
            version = -1


def _timed_out(entry: Entry, limit: float) -> WaitTimedOut:
    from bitfusion_client.durations import format_duration

    gpus = entry.request.gpus
    return WaitTimedOut(entry.request, f"timed out after {format_duration(limit)} waiting for {gpus} GPUs")
