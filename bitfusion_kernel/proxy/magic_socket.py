"""The socket on which the `%bitfusion` magic of a running kernel asks the proxy.

One JSON line in, one JSON line out. The question is {"words": "request -n 2"}. The answer is {"text": …} to
print, {"error": …} to print on stderr, or {"client": "list_gpus"}: the kernel then runs the bitfusion client.
The socket lies in the proxy's 0700 folder; the peer's user is checked all the same.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import TYPE_CHECKING

from bitfusion_kernel.proxy.event_loop import EventLoop

if TYPE_CHECKING:
    from bitfusion_kernel.magic.kernel_view import KernelView

NAME = "proxy"
_LONGEST_QUESTION = 65536


class MagicSocket:
    """Accepts questions while the proxy lives. Answers are short, so each is served in one go.

    Args:
        folder: The proxy's private folder.
        loop: Watches the socket.
        kernel: The kernel as commands see it.
    """

    def __init__(self, folder: str, loop: EventLoop, kernel: KernelView) -> None:
        self._loop = loop
        self._kernel = kernel
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(os.path.join(folder, NAME))
        self._listener.listen(4)
        self._listener.setblocking(False)
        loop.on(self._listener.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", peer)[1] not in (os.getuid(), 0):
            connection.close()
            return
        connection.settimeout(1.0)  # the magic sends its line at once; a slower peer is not the magic
        with connection:
            try:
                question = connection.recv(_LONGEST_QUESTION)
                answer = self._answer(json.loads(question))
                connection.sendall(json.dumps(answer).encode() + b"\n")
            except (OSError, ValueError, KeyError, TypeError, RecursionError):
                return

    def _answer(self, question: dict[str, object]) -> dict[str, str]:
        from bitfusion_client.errors import BitfusionError
        from bitfusion_kernel.magic import commands

        words = question["words"]
        if not isinstance(words, str):
            raise TypeError
        try:
            answer = commands.answer(words, self._kernel)
        except BitfusionError as error:
            return {"error": error.user_message}
        if isinstance(answer, commands.RunClient):
            return {"client": answer.subcommand}
        return {"text": answer.meanwhile if isinstance(answer, commands.AwaitGpu) else answer.text}

    def close(self) -> None:
        """Stop accepting."""
        self._loop.off(self._listener.fileno())
        self._listener.close()
