"""One look at the pool for all pages of all browsers, as often as somebody needs it and no oftener."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bitfusion_client.errors import BitfusionError
from jupyter_ext.server.errors import of_bitfusion
from jupyter_ext.server.pool_history import PoolHistory
from jupyter_ext.server.pool_report import figures, pool_report

Json = dict[str, Any]

LOST_AFTER = 2
"""Looks that fail one after the other before it is told: a single one may be chance."""

LOST = "The GPU pool cannot be reached: {why} Running cells continue; new ones wait until it is back."
BACK = "The GPU pool is back."

_PATIENCE_WHEN_KNOWN = 1.0  # seconds: what is known already is told, if a slow client takes longer

_OLD_AFTER = 2.0
"""Intervals after which a look says nothing any more of who waits now."""

_TICK = 1.0
"""Seconds after which it is thought over how soon the next look is due."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often it is looked, in seconds.

    Attributes:
        fast: From one look to the next while somebody waits, or the pool is away.
        slow: The same otherwise.
        unasked: So long after the last question nothing is looked at any more.
        patience: The longest that a question waits for the first look; then it is told that nothing is known.
    """

    fast: float = 2.0
    slow: float = 15.0
    unasked: float = 30.0
    patience: float = 4.0


class PoolLook:
    """What is known of the pool. The server has one; all of it runs on the server's event loop.

    Args:
        list_gpus: Runs the client's command; raises BitfusionError.
        mine: See `own_names`.
        somebody_waits: Whether one of this server's kernels does, which the pool may not tell.
        on_change: Called when a look differs from the one before.
        on_notice: Called with ``pool_lost`` or ``pool_back``, and a sentence.
        pace: How often.
    """

    def __init__(
        self,
        list_gpus: Callable[[], Awaitable[str]],
        mine: Sequence[str],
        *,
        somebody_waits: Callable[[], bool] = lambda: False,
        on_change: Callable[[], None] = lambda: None,
        on_notice: Callable[[str, str], None] = lambda kind, message: None,
        pace: Pace = Pace(),  # frozen
    ) -> None:
        self._list_gpus = list_gpus
        self._mine = tuple(mine)
        self._somebody_waits = somebody_waits
        self._on_change = on_change
        self._on_notice = on_notice
        self._pace = pace
        self._report = pool_report("", ())
        self._report["text"] = None
        self._history = PoolHistory()
        self._error: Json | None = None
        self._failed = 0
        self._seen_at: float | None = None  # seconds since the epoch
        self._asked_at = self._looked_at = float("-inf")  # of time.monotonic()
        self._hurried = False
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.looks = 0
        """How many have been begun."""

    async def ask(self) -> Json:
        """The pool, for a page: looked at anew if the last look is too old, else as it is known."""
        self._asked_at = time.monotonic()
        if self._task is None or self._task.done():
            self._looked = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._keep_looking())
        if self._is_stale():
            known = self._seen_at is not None or self._error is not None
            patience = min(_PATIENCE_WHEN_KNOWN, self._pace.patience) if known else self._pace.patience
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._looked.wait(), patience)
        return self.to_json()

    def hurry(self) -> None:
        """Something has changed that the pool will show: look as soon as may be, if anybody is interested."""
        self._hurried = True

    def to_json(self) -> Json:
        """What is known, without a look."""
        return {
            "seen_at": self._seen_at,
            "error": self._error,
            **self._report,
            "history": self._history.to_json(),
        }

    @property
    def report(self) -> Json:
        """What the last look that succeeded has told, as `pool_report` has it."""
        return self._report

    @property
    def waiting(self) -> Sequence[Json] | None:
        """Who waits, as it is known now; None while the pool is away, or has not been looked at of late."""
        is_old = time.monotonic() - self._looked_at > _OLD_AFTER * self._pace.slow
        if is_old or self._error is not None or self._seen_at is None:
            return None
        waiting: Sequence[Json] = self._report["waiting"]
        return waiting

    async def stop(self) -> None:
        """The server ends: no look goes on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _interval(self) -> float:
        fast = self._error or self._report["waiting"] or self._hurried or self._somebody_waits()
        return self._pace.fast if fast else self._pace.slow

    def _is_stale(self) -> bool:
        return time.monotonic() - self._looked_at >= self._interval()

    async def _keep_looking(self) -> None:
        while time.monotonic() - self._asked_at < self._pace.unasked:
            left = self._looked_at + self._interval() - time.monotonic()
            if left > 0:
                await asyncio.sleep(min(left, self._pace.fast, _TICK))
            else:
                await self._look()

    async def _look(self) -> None:
        self._hurried = False
        self.looks += 1
        before = (self._report, self._error)
        try:
            self._report = pool_report(await self._list_gpus(), self._mine)
        except BitfusionError as error:
            self._error = of_bitfusion(error).to_json()
        else:
            self._error = None
            self._seen_at = round(time.time(), 3)
            self._history.add(self._seen_at, figures(self._report))
        finally:
            # from its end: a slow client is not run without a pause
            self._looked_at = time.monotonic()
        done, self._looked = self._looked, asyncio.Event()
        done.set()
        self._tell(before)

    def _tell(self, before: tuple[Json, Json | None]) -> None:
        if self._error is None:
            if self._failed >= LOST_AFTER:
                self._on_notice("pool_back", BACK)
            self._failed = 0
        else:
            self._failed += 1
            if self._failed == LOST_AFTER:
                self._on_notice("pool_lost", LOST.format(why=self._error["message"].replace("\n", " ")))
        if before != (self._report, self._error):
            self._on_change()
