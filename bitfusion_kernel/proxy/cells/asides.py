"""`%bitfusion` cells that are answered although a cell before them waits for a GPU. Pure.

A person who looks at a cell that waits asks `%bitfusion status` or `pool`, and must not wait for the answer,
too. Cells that came in one go ("Run All") keep their order.
"""

from __future__ import annotations

from collections.abc import Container

from bitfusion_kernel.magic.cell import changes_nothing
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue

ONE_GO = 0.3
"""Seconds between two cells that a client may still have sent in one go: JupyterLab takes 10 ms for each,
and more on a busy machine. Nobody sees that a cell waits, and asks why, in that time."""


class Asides:
    """Which of the queued requests may be answered before their turn; the scheduler has one."""

    def __init__(self) -> None:
        self._asides: list[QueuedRequest] = []

    def look_at(self, request: QueuedRequest, before: QueuedRequest | None) -> None:
        """A request has come; `before` is what came before it to its shell and is queued or runs here."""
        if before is None or request.commands is None or not changes_nothing(request.commands):
            return
        if _seconds_between(before, request) > ONE_GO:
            self._asides.append(request)

    def take(self, queue: RequestQueue, busy: Container[str | None]) -> QueuedRequest | None:
        """The next one that is still queued and whose shell is not busy, or None."""
        self._asides = [request for request in self._asides if request in queue]
        for request in self._asides:
            if request.subshell not in busy:
                self._asides.remove(request)
                return request
        return None


def _seconds_between(one: QueuedRequest, other: QueuedRequest) -> float:
    """By the client's clock, as requests may be read late; of two clients, by their arrival."""
    from bitfusion_kernel.protocol.message_date import sent_at

    headers = one.message.header, other.message.header
    if headers[0].get("session") == headers[1].get("session"):
        sent = sent_at(headers[0]), sent_at(headers[1])
        if sent[0] is not None and sent[1] is not None:
            return sent[1] - sent[0]
    return other.arrived_at - one.arrived_at
