"""Tells sessions what becomes of their leases and requests: granted, ended by somebody, another position."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from bitfusion_client.errors import BitfusionError
from bitfusion_pool.ledger.entries import HELD
from bitfusion_pool.service.timed_event import wait_at_most

_log = logging.getLogger(__name__)
REFRESH_S = 10.0  # how often a position is sent again although nothing changed
_PAUSE_S = 0.2  # between two rounds through all positions
_SLICE_S = 0.004  # of a round before others get their turn


class Watched(Protocol):
    """The session of an entry."""

    def entry_granted(self, entry_id: str) -> None:
        """The entry holds GPUs. Told again with every change: only the first time is news."""

    def entry_gone(self, entry_id: str) -> None:
        """Somebody else ended the entry, or it was found dead. It is watched no more."""

    def show_position(self, entry_id: str, refresh: bool) -> None:
        """Tell the client its queue position if that has changed, or in any case. Not waiting: nothing."""


class EntryWatch:
    """Knows the session of every entry that has one. `run` must be running."""

    def __init__(self, states: Callable[[], Mapping[str, str]], loop: asyncio.AbstractEventLoop) -> None:
        """`states` reads the state of every entry by its id."""
        self._states = states
        self._loop = loop
        self._sessions: dict[str, Watched] = {}
        self._is_due = False
        self._positions_due = asyncio.Event()

    def add(self, entry_id: str, session: Watched) -> None:
        """Watch an entry for this session."""
        self._sessions[entry_id] = session

    def remove(self, entry_id: str) -> None:
        """Watch it no more."""
        self._sessions.pop(entry_id, None)

    def tell_gone(self, entry_id: str) -> None:
        """Tell an entry's session that somebody ended it, while processes still use it."""
        session = self._sessions.pop(entry_id, None)
        if session is not None:
            session.entry_gone(entry_id)

    def changed(self) -> None:
        """The ledger may have changed: who is concerned hears of it in the loop's next round."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._is_due = False
        try:
            states = self._states()
        except BitfusionError as error:
            _log.error("ledger cannot be read", extra={"reason": str(error)})
            return
        for entry_id, session in list(self._sessions.items()):
            state = states.get(entry_id)
            if state is None:
                self.remove(entry_id)
                session.entry_gone(entry_id)
            elif state == HELD:
                session.entry_granted(entry_id)
        self._positions_due.set()

    async def run(self) -> None:
        """Send queue positions, in slices, so that a long queue keeps nobody waiting."""
        refresh_at = time.monotonic() + REFRESH_S
        while True:
            await wait_at_most(self._positions_due, refresh_at - time.monotonic())
            refresh = time.monotonic() >= refresh_at
            if refresh:
                refresh_at = time.monotonic() + REFRESH_S
            await self._show_positions(refresh)
            await asyncio.sleep(_PAUSE_S)

    async def _show_positions(self, refresh: bool) -> None:
        until = time.monotonic() + _SLICE_S
        for entry_id, session in list(self._sessions.items()):
            if self._sessions.get(entry_id) is not session:
                continue  # over since the round began
            session.show_position(entry_id, refresh)
            if time.monotonic() >= until:
                await asyncio.sleep(0)
                until = time.monotonic() + _SLICE_S
