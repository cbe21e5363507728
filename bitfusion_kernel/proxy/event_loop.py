"""The proxy's event loop: handlers of sockets and descriptors, named timers, signals.

Not asyncio: importing that costs more than the whole time the proxy has for its first reply.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import zmq


class EventLoop:
    """One thread. Handlers are called when their source can be read; timers once, at their time."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._handlers: dict[Any, Callable[[], object]] = {}
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}

    def on(self, source: Any, handler: Callable[[], object], *, writable: bool = False) -> None:
        """Watch a zmq socket or a descriptor; `writable` also calls the handler when it can be written."""
        self._handlers[source] = handler
        self._poller.register(source, zmq.POLLIN | (zmq.POLLOUT if writable else 0))

    def off(self, source: Any) -> None:
        """Stop watching; nothing happens if it was not watched."""
        if self._handlers.pop(source, None) is not None:
            self._poller.unregister(source)

    def watches(self, source: Any) -> bool:
        """Whether a source has a handler."""
        return source in self._handlers

    def set_timer(self, name: str, when: float, action: Callable[[], None]) -> None:
        """Call `action` at `when` (`time.monotonic()` seconds). A timer of the same name is replaced."""
        self._timers[name] = (when, action)

    def cancel_timer(self, name: str) -> None:
        """Forget a timer, if there is one of this name."""
        self._timers.pop(name, None)

    def on_signals(self, numbers: tuple[int, ...], action: Callable[[int], None]) -> None:
        """Have `action` called from the loop, never in the middle of something, for each signal."""
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)

        def deliver() -> None:
            for number in os.read(woken, 64):
                action(number)

        self.on(woken, deliver)

    def run(self, *, until: Callable[[], bool]) -> None:
        """Serve until `until` holds; it is asked after each handler."""
        while not until():
            for ready, _ in self._poller.poll(self._timeout()):
                handler = self._handlers.get(ready)  # an earlier handler may have taken it away
                if handler is not None and not until():
                    handler()
            self._run_timers(until)

    def _timeout(self) -> int | None:
        if not self._timers:
            return None
        soonest = min(when for when, _ in self._timers.values())
        return max(0, int((soonest - time.monotonic()) * 1000 + 1))

    def _run_timers(self, until: Callable[[], bool]) -> None:
        if not self._timers:
            return
        now = time.monotonic()
        for name, (when, action) in sorted(self._timers.items(), key=lambda timer: timer[1][0]):
            if when <= now and self._timers.get(name) == (when, action) and not until():
                del self._timers[name]
                action()
