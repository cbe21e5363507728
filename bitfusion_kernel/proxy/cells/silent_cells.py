"""Helpers' cells without a kernel: answered after a time, and run by the kernel once it has come.

Clients and their extensions send code for themselves when they connect, silent or kept out of the history,
and many wait for its reply.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bitfusion_kernel.proxy.cells.cell_replies import CellReplies
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue
from bitfusion_kernel.proxy.event_loop import EventLoop

_TIMER = "silent"


class SilentCells:
    """Answers the silent cells of the queue when their time is up; the scheduler has one.

    `answer_after` gives a time in seconds, from the cell's arrival.
    """

    def __init__(
        self, loop: EventLoop, queue: RequestQueue, replies: CellReplies, answer_after: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._replies = replies
        self._answer_after = answer_after

    def watch(self) -> None:
        """A silent cell has been queued, and there is no kernel."""
        waiting = self._queue.first_where(_is_unanswered)
        if waiting is not None:
            self._loop.set_timer(_TIMER, waiting.arrived_at + self._answer_after(), self._answer)

    def leave_to_kernel(self) -> None:
        """The kernel has come and answers itself."""
        self._loop.cancel_timer(_TIMER)

    def _answer(self) -> None:
        now = time.monotonic()
        for cell in filter(_is_unanswered, self._queue):
            if cell.arrived_at + self._answer_after() <= now:
                cell.answered = True
                self._replies.announce(cell)
                self._replies.finish(cell, 0)
        self.watch()


def _is_unanswered(request: QueuedRequest) -> bool:
    return request.is_helper and request.commands is None and not request.answered
