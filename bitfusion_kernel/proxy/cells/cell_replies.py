"""How the proxy ends a cell in place of the kernel: ok, error or aborted, in ipykernel's form."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError


class CellReplies:
    """Used for cells that never reach the kernel, and to show why it died in the cell that ran.

    `queue` holds the cells that are aborted behind one that fails; `receive_arrived` takes those in that have
    arrived on shell by then and are not queued yet.
    """

    def __init__(
        self,
        shell: ClientChannel,
        publisher: Publisher,
        queue: RequestQueue,
        receive_arrived: Callable[[], None],
    ) -> None:
        self._shell = shell
        self._publisher = publisher
        self._queue = queue
        self._receive_arrived = receive_arrived

    def announce(self, cell: QueuedRequest) -> None:
        """Say `busy` for a cell that the proxy itself works on, once."""
        if not cell.announced:
            cell.announced = True
            self._publisher.status("busy", cell.message.header)

    def finish(self, cell: QueuedRequest, execution_count: int) -> None:
        """End a cell that went well."""
        content = {"status": "ok", "execution_count": execution_count, "user_expressions": {}, "payload": []}
        self._shell.reply(cell.message, content, _metadata("ok"))
        self._publisher.status("idle", cell.message.header)

    def fail(self, cell: QueuedRequest, error: BitfusionError) -> None:
        """End a cell with an error: no `execute_input`, no execution count is consumed.

        What has arrived by now is aborted; what comes upon the reply is not.
        """
        if _aborts_others(cell):
            self._receive_arrived()
        self.announce(cell)
        self.end(cell, error)
        self.abort_behind(cell)

    def end(self, cell: QueuedRequest, error: BitfusionError) -> None:
        """End a cell with an error; those behind it are left alone. Silent code shows nothing."""
        shown = as_exception(error) if cell.is_silent else self.show(cell, error)
        content = {"status": "error", **shown, "execution_count": 0, "user_expressions": {}, "payload": []}
        self._shell.reply(cell.message, content, _metadata("error"))
        self._publisher.status("idle", cell.message.header)

    def tell_busy(self, cells: Iterable[QueuedRequest]) -> None:
        """Say again that these run: JupyterLab takes the `idle` of any cell for the kernel's."""
        for cell in cells:
            self._publisher.status("busy", cell.message.header)

    def show(self, cell: QueuedRequest, error: BitfusionError) -> dict[str, Any]:
        """Show an error in a cell and reply nothing, as when the kernel is dead; what it shows."""
        shown = as_exception(error)
        self._publisher.error(shown["ename"], shown["evalue"], shown["traceback"], cell.message.header)
        return shown

    def abort_behind(self, failed: QueuedRequest) -> None:
        """End what is queued behind a cell that failed, here or in the kernel, as ipykernel does."""
        if not _aborts_others(failed):
            return

        self.abort_where(
            lambda cell: cell.arrived_at >= failed.arrived_at and cell.subshell == failed.subshell
        )

    def abort_where(self, wanted: Callable[[QueuedRequest], bool]) -> None:
        """End queued cells that are visible, without a word."""

        def visible(request: QueuedRequest) -> bool:
            return request.is_execute and not (request.is_silent or request.answered)

        for cell in self._queue.take_where(lambda each: visible(each) and wanted(each)):
            self.abort(cell)

    def abort(self, request: QueuedRequest) -> None:
        """End a cell that is not run; nothing is said of another message."""
        if request.is_execute:
            self._publisher.status("busy", request.message.header)
            self._shell.reply(request.message, {"status": "aborted"}, _metadata("aborted"))
            self._publisher.status("idle", request.message.header)


def _aborts_others(failed: QueuedRequest) -> bool:
    return failed.stops_on_error and not failed.is_silent


def as_exception(error: BitfusionError) -> dict[str, Any]:
    """An error in the fields in which Jupyter's messages tell an exception."""
    name = type(error).__name__
    first, *others = error.user_message.splitlines()
    return {"ename": name, "evalue": first, "traceback": [f"\x1b[0;31m{name}\x1b[0m: {first}", *others]}


def _metadata(status: str) -> dict[str, Any]:
    started = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"
    return {"started": started, "status": status}
