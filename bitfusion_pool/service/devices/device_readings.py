"""Reads the service's real devices again and again, so that what others use of them is not handed out.

Only in a pool that has real devices. A request for GPUs, or to see the pool, is answered after a reading
that is at most a second old; a driver that takes longer than `HOLD_S` keeps nobody waiting any more.

Whose a process on a card is, is its user's, as the kernel tells everybody: the environment of other users'
processes, by which a user's own pool tells them apart, is not for the service's account to read
(docs/decisions/0057-nvml-in-a-process-of-its-own.md).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection

from bitfusion_client.errors import BitfusionError
from bitfusion_pool.inventory.nvidia.device_use import UseByDevice, steady_use, unreadable_use
from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable
from bitfusion_pool.ledger.device_watch import process_name, use_now
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.own_files import user_name
from bitfusion_pool.service.devices.card_reader import CardReader
from bitfusion_pool.service.timed_event import wait_at_most

_log = logging.getLogger(__name__)

WHILE_WAITING_S = 2.0  # between two readings while somebody waits
WHILE_HELD_S = 5.0
WHILE_IDLE_S = 30.0
FRESH_S = 1.0  # so old may a reading be that answers a request
HOLD_S = 2.0  # so long is a request held back for a reading; clients wait 3 s for an answer
_LOOK_S = 1.0  # at whether a reading is due
_MOST_OF_STATUS = 1 << 16  # bytes of /proc/PID/status


class DeviceReadings:
    """The readings of one service, noted in its ledger. `run` must be running.

    `changed` is called when what is known of the devices has changed.
    """

    def __init__(
        self, ledger: Ledger, reader: CardReader, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._reader = reader
        self._loop = loop
        self._changed = changed
        self._wanted = asyncio.Event()
        self._read_at = float("-inf")  # when the last reading began
        self._is_late = False  # the driver takes too long for anybody to wait for it
        self._held: deque[Callable[[], None]] = deque()
        self._hold_ends: asyncio.TimerHandle | None = None
        self._is_letting_go = False

    def once_known(self, answer: Callable[[], None]) -> None:
        """Call `answer` once the real devices have been read: at once if they have been, or there are none.

        Those who had to wait are called in the order they came, one in each round of the event loop.
        """
        is_known = self._is_late or time.monotonic() < self._read_at + FRESH_S
        if not self._held and (is_known or not self._has_real_devices()):
            answer()
            return
        self._held.append(answer)
        self._wanted.set()
        if self._hold_ends is None:
            self._hold_ends = self._loop.call_later(HOLD_S, self._hold_no_longer)

    async def run(self) -> None:
        """Read whenever it is due."""
        while True:
            try:
                if self._ledger.has_real_devices and self._is_due():
                    await self._read()
            except BitfusionError as error:
                self._read_at = time.monotonic()
                _log.error("devices cannot be noted", extra={"reason": str(error)})
            self._let_go()
            await wait_at_most(self._wanted, _LOOK_S)

    def _has_real_devices(self) -> bool:
        try:
            return self._ledger.has_real_devices
        except BitfusionError:
            return False  # whoever asks meets the same error, and says it

    def _is_due(self) -> bool:
        age = time.monotonic() - self._read_at
        return age >= WHILE_IDLE_S or age >= pause_s(self._ledger.states().values(), bool(self._held))

    async def _read(self) -> None:
        begun = time.monotonic()
        try:
            reading = await self._reader.read()
        except NvidiaUnusable as error:
            self._note(unreadable_use(self._ledger.servers, error.answered))
        else:
            self._note(use_now(self._ledger, reading, _owner_of_lease, _owner_of_process, _named_program))
        self._read_at = begun
        self._is_late = time.monotonic() - begun > HOLD_S

    def _note(self, found: UseByDevice) -> None:
        before = self._ledger.device_use
        now = steady_use(before, found)
        self._ledger.note_device_use(now)
        for (server, number), use in now.items():
            known = before.get((server, number))
            if use.problem != (known.problem if known else ""):
                about = {"server": server, "gpu": number, "problem": use.problem}
                if use.problem:
                    _log.error("GPU cannot be used", extra=about)
                else:
                    _log.info("GPU can be used again", extra=about)
        if _what_matters(now) != _what_matters(before):
            self._changed()

    def _hold_no_longer(self) -> None:
        self._is_late = True
        self._let_go()

    def _let_go(self) -> None:
        """Answer those who were held back."""
        if self._hold_ends is not None:
            self._hold_ends.cancel()
            self._hold_ends = None
        if self._held and not self._is_letting_go:
            self._is_letting_go = True
            self._loop.call_soon(self._answer_one)

    def _answer_one(self) -> None:
        answer = self._held.popleft()
        self._is_letting_go = bool(self._held)
        if self._held:
            self._loop.call_soon(self._answer_one)
        answer()


def pause_s(states: Collection[str], is_asked: bool) -> float:
    """Seconds from one reading to the next, while the ledger's entries have these states. Pure."""
    if is_asked:
        return FRESH_S
    if WAITING in states:
        return WHILE_WAITING_S
    return WHILE_HELD_S if HELD in states else WHILE_IDLE_S


def _what_matters(use: UseByDevice) -> dict[tuple[str, int], tuple[int, str, str]]:
    """All but how busy a device is, which changes all the time and concerns nobody who waits."""
    return {key: (one.foreign_mib, one.programs, one.problem) for key, one in use.items()}


def _owner_of_lease(entry: Entry) -> str:
    """Who may use what a lease holds: its user, by uid."""
    return str(entry.holder.uid)


def _owner_of_process(pid: int) -> str:
    """The real uid of a process; empty if it is not to be seen."""
    uid = _uid(pid)
    return "" if uid is None else str(uid)


def _named_program(pid: int) -> str:
    """A process as everybody is shown it, ``blender of ada``; empty if it is not to be seen."""
    uid, name = _uid(pid), process_name(pid)
    return f"{name} of {user_name(uid)}" if name and uid is not None else ""


def _uid(pid: int) -> int | None:
    # the owner of /proc/PID is root where a process has made itself unreadable
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            text = file.read(_MOST_OF_STATUS)
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None
