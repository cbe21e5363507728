"""The display of a pool that is out of reach, in the cell that runs then: shown, and updated in place.

A display and no text on stderr: it stands apart from what the cell prints, takes part in no line of it, and
the pool's return changes it where it is. It stays in the notebook: a run that nobody watched should tell it.
What it says is made by `gpu.pool_outage`.
"""

from __future__ import annotations

import os
import time

from bitfusion_kernel.gpu import pool_outage
from bitfusion_kernel.gpu.pool_outage import PoolOutage
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestsInKernel
from bitfusion_kernel.proxy.jupyter.publisher import Publisher


class OutageDisplay:
    """The proxy has one. It shows each outage in one cell: the one that runs, or the first that will."""

    def __init__(self, publisher: Publisher, in_kernel: RequestsInKernel) -> None:
        self._publisher = publisher
        self._in_kernel = in_kernel
        self._outage: PoolOutage | None = None
        self._cell: QueuedRequest | None = None
        self._display_id = ""

    def show(self, outage: PoolOutage) -> None:
        """The pool is out of reach, for another reason than before perhaps, or is back."""
        self._outage = outage
        if self._cell is not None:
            self._publish(self._cell, update=True)
        elif outage.lasts:
            running = self._in_kernel.running()
            if running:
                self._show_in(running[0])
            else:
                self._in_kernel.on_sent = self._show_in
        if not outage.lasts:
            self._cell = self._in_kernel.on_sent = None

    def _show_in(self, cell: QueuedRequest) -> None:
        if cell.is_silent:
            return
        self._in_kernel.on_sent = None
        self._cell = cell
        self._display_id = f"bitfusion-outage-{os.urandom(8).hex()}"
        self._publish(cell, update=False)

    def _publish(self, cell: QueuedRequest, *, update: bool) -> None:
        assert self._outage is not None
        data = pool_outage.render(self._outage, time.time())
        self._publisher.display(data, self._display_id, cell.message.header, update=update)
