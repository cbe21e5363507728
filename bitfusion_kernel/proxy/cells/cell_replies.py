"""How the proxy ends a cell in place of the kernel: ok, error or aborted, in ipykernel's form."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel
from bitfusion_kernel.proxy.jupyter.publisher import Publisher

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError


class CellReplies:
    """Used for cells that never reach the kernel, and to show why it died in the cell that ran."""

    def __init__(self, shell: ClientChannel, publisher: Publisher) -> None:
        self._shell = shell
        self._publisher = publisher

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
        """End a cell with an error: no `execute_input`, no execution count is consumed."""
        shown = self.show(cell, error)
        content = {"status": "error", **shown, "execution_count": 0, "user_expressions": {}, "payload": []}
        self._shell.reply(cell.message, content, _metadata("error"))
        self._publisher.status("idle", cell.message.header)

    def show(self, cell: QueuedRequest, error: BitfusionError) -> dict[str, Any]:
        """Show an error in a cell and reply nothing, as when the kernel is dead; what it shows."""
        shown = as_exception(error)
        self._publisher.error(shown["ename"], shown["evalue"], shown["traceback"], cell.message.header)
        return shown

    def abort(self, cell: QueuedRequest) -> None:
        """End a cell queued behind one that failed, as ipykernel's `_send_abort_reply` does."""
        self._publisher.status("busy", cell.message.header)
        self._shell.reply(cell.message, {"status": "aborted"}, _metadata("aborted"))
        self._publisher.status("idle", cell.message.header)


def as_exception(error: BitfusionError) -> dict[str, Any]:
    """An error in the fields in which Jupyter's messages tell an exception."""
    name = type(error).__name__
    first, *others = error.user_message.splitlines()
    return {"ename": name, "evalue": first, "traceback": [f"\x1b[0;31m{name}\x1b[0m: {first}", *others]}


def _metadata(status: str) -> dict[str, Any]:
    started = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + "Z"
    return {"started": started, "status": status}
