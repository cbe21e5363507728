"""What is told on the Jupyter server's event bus, so that pages need not ask: changes, and notices.

A page that is hidden asks nothing and still hears of these. The schema is registered when the extension is
loaded: whoever has subscribed before a schema is known never hears of its events.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from logging import Logger
from pathlib import Path
from typing import Any

from jsonschema import ValidationError
from jupyter_events.logger import EventLogger

from jupyter_ext.server.kernel_notices import (
    SOON,
    idle_release_at,
    idle_release_notice,
    is_released_soon,
    is_waited_for,
    notices,
)
from jupyter_ext.server.overview import Documents, kernel_json

Json = dict[str, Any]

SCHEMA_ID = "https://kubeflow-bitfusion.io/events/changed/v1"
SCHEMA_FILE = Path(__file__).parent / "event_schemas" / "changed.v1.yaml"


def register(event_logger: EventLogger) -> None:
    """Make the schema known. Its version is text, which jupyter_events before 0.11 wants as a number."""
    try:
        event_logger.register_event_schema(SCHEMA_FILE)
    except ValidationError:
        text = SCHEMA_FILE.read_text("utf-8")
        event_logger.register_event_schema(text.replace('version: "1"', "version: 1", 1))


class Announcer:
    """Tells the event bus, in the order in which things happen; states of a kernel that are outdated, not.

    Args:
        event_logger: The server's.
        documents: Looks up to which notebook each kernel belongs.
        log: For faults of our own.
    """

    def __init__(
        self, event_logger: EventLogger, documents: Callable[[], Awaitable[Documents]], log: Logger
    ) -> None:
        self._events = event_logger
        self._documents = documents
        self._log = log
        self._changed: dict[str, tuple[Json | None, Json | None]] = {}
        self._others: list[Json] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waited_for: set[str] = set()
        """Kernels of which it has been told, and not after each of their cells."""
        if SCHEMA_ID not in event_logger.schemas:
            register(event_logger)

    def start(self) -> None:
        """Begin; called once the event loop runs."""
        self._task = asyncio.get_running_loop().create_task(self._tell_all())

    async def stop(self) -> None:
        """The server ends."""
        for timer in self._timers.values():
            timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def pool_changed(self) -> None:
        """The pool differs from what was told of it last."""
        told = {"what": "pool"}
        if told not in self._others:
            self._others.append(told)
        self._wake.set()

    def notice(self, kind: str, message: str, kernel_id: str | None = None) -> None:
        """Something that its person wants to know."""
        self._others.append({"what": "notice", "kind": kind, "kernel_id": kernel_id, "message": message})
        self._wake.set()

    def kernel_changed(self, kernel_id: str, before: Json | None, after: Json | None) -> None:
        """A kernel's published state has changed; None: there is, or was, none."""
        first, _ = self._changed.get(kernel_id, (before, None))
        self._changed[kernel_id] = (first, after)
        self._wake.set()

    async def _tell_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, {}
            try:
                documents = await self._documents() if changed else {}
                for kernel_id, (before, after) in changed.items():
                    self._tell_kernel(kernel_id, before, after, documents)
                others, self._others = self._others, []
                for told in others:
                    self._emit(told)
            except Exception:  # it must not end for all that is still to come
                self._log.exception("An event of the GPU pool could not be sent")

    def _tell_kernel(
        self, kernel_id: str, before: Json | None, after: Json | None, documents: Documents
    ) -> None:
        told = None if after is None else kernel_json(kernel_id, after, documents)
        self._emit({"what": "kernel", "kernel_id": kernel_id, "state": told})
        title = "" if told is None else told["title"]
        if after is None or not is_waited_for(after):
            self._waited_for.discard(kernel_id)
        for kind, message in notices(before, after, title, time.time()):
            if kind == "someone_waits":
                if kernel_id in self._waited_for:
                    continue
                self._waited_for.add(kernel_id)
            self.notice(kind, message, kernel_id)
        self._tell_in_time(kernel_id, after, title)

    def _tell_in_time(self, kernel_id: str, state: Json | None, title: str) -> None:
        """A release by idleness is told some time before, at which nothing of the state changes."""
        if (timer := self._timers.pop(kernel_id, None)) is not None:
            timer.cancel()
        at = None if state is None else idle_release_at(state)
        now = time.time()
        if state is None or at is None or is_released_soon(state, now):
            return

        def tell() -> None:
            self._timers.pop(kernel_id, None)
            self.notice(*idle_release_notice(state, title, time.time()), kernel_id)

        delay = min(at - now - SOON, _LONGEST_TIMER)
        self._timers[kernel_id] = asyncio.get_running_loop().call_later(delay, tell)

    def _emit(self, told: Json) -> None:
        self._events.emit(schema_id=SCHEMA_ID, data=told)


_LONGEST_TIMER = 7 * 24 * 3600.0  # seconds; nobody releases later than that
