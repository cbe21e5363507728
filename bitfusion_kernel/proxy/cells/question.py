"""A question to the person at a cell that the proxy runs, asked as `input()` asks."""

from __future__ import annotations

from collections.abc import Callable

from bitfusion_kernel.protocol.wire import Message, Wire
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel


class Questions:
    """The proxy has one; each client is asked one question at a time, the newest."""

    def __init__(self, stdin: ClientChannel, wire: Wire) -> None:
        self._stdin = stdin
        self._wire = wire
        self._open: dict[bytes, tuple[QueuedRequest, Callable[[str], None]]] = {}

    def ask(self, cell: QueuedRequest, prompt: str, on_answer: Callable[[str], None]) -> None:
        """Show a prompt in the cell; `on_answer` is called with what is typed."""
        identities = cell.message.identities
        self._open[identities[0]] = cell, on_answer
        content = {"prompt": prompt, "password": False}
        self._stdin.send(
            self._wire.build("input_request", content, parent=cell.message.header, identities=identities)
        )

    def forget(self, cell: QueuedRequest) -> None:
        """The answer is not wanted any more."""
        self._open.pop(cell.message.identities[0], None)

    def take(self, message: Message) -> bool:
        """Whether a message on stdin is the answer to a question of ours; then that is answered."""
        client = message.identities[0] if message.identities else b""
        if message.type != "input_reply" or client not in self._open:
            return False
        _, on_answer = self._open.pop(client)
        on_answer(str(message.content.get("value", "")))
        return True
