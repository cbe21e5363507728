"""A wrapper that asks for other GPUs while the one that runs keeps its own: a change of size.

It takes that one's place once it has GPUs and the proxy says so. If it gets none in time it is ended, and the
other goes on as if nothing had been asked: nobody holds for long what others wait for while waiting for more.
"""

from __future__ import annotations

import time
from collections import deque

from bitfusion_kernel.processes.messages import Event, GrantedEvent, LaunchedEvent, OutputEvent
from bitfusion_kernel.processes.wrapper import Wrapper

TAKE_PATIENCE = 10.0
"""Seconds that it keeps what it has got: the proxy ends the kernel before it takes that."""


class Beside:
    """The supervisor has at most one. `said` gets the wrapper's lines, up to the kernel's first."""

    def __init__(self, wrapper: Wrapper, said: deque[OutputEvent]) -> None:
        self.wrapper = wrapper
        self.said = said
        self.events: list[Event] = []
        """What its launcher has told, for the proxy that takes it."""
        self._until = time.monotonic() + wrapper.started.beside

    @property
    def number(self) -> int:
        """Of the wrapper."""
        return self.wrapper.started.number

    @property
    def ready(self) -> bool:
        """Whether it can be taken."""
        return bool(self.events) and not self.wrapper.stopping

    def on_launcher_ready(self) -> GrantedEvent | None:
        """The launcher connects or sends; the event for the proxy, when it has GPUs."""
        was_ready = self.ready
        self.events += self.wrapper.on_launcher_ready()
        if was_ready or not any(isinstance(event, LaunchedEvent) for event in self.events):
            return None
        self._until = time.monotonic() + TAKE_PATIENCE
        return GrantedEvent(self.number)

    @property
    def seconds_left(self) -> float:
        """Until it is ended."""
        return float("inf") if self.wrapper.stopping else max(0.0, self._until - time.monotonic())

    def on_time(self) -> None:
        """End it if its time is over, or bring its end nearer."""
        if self.seconds_left == 0.0:
            self.wrapper.stop()
        self.wrapper.on_time()
