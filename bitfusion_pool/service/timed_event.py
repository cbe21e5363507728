"""Waiting for an event, but not for ever. `asyncio.wait_for` may lose a cancellation before Python 3.12."""

from __future__ import annotations

import asyncio


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, which this does itself after so many seconds; then clear it."""
    timer = asyncio.get_running_loop().call_later(max(0.0, seconds), event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
    event.clear()
