"""The socket on which the `%bitfusion` magic of a running kernel asks the proxy.

One JSON line in, one JSON line out. The question is {"words": "request -n 2"}. The answer is {"text": …} to
print, {"bundle": …} to display, {"error": …} to print on stderr, or {"client": "list_gpus", "path": …}: the
kernel then runs the bitfusion client and prints what it says. The socket lies in the proxy's 0700 folder; the
peer's user is checked all the same.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from typing import TYPE_CHECKING

from bitfusion_kernel.proxy.event_loop import EventLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_kernel.magic.kernel_view import KernelView
    from bitfusion_kernel.proxy.cells.client_command import ClientCommand, RunClientCommand

NAME = "proxy"
_LONGEST_QUESTION = 65536


class MagicSocket:
    """Accepts questions while the proxy lives. Answers are short, so each is served in one go.

    Args:
        loop: Watches the socket.
        kernel: The kernel as commands see it.
        run_client: Starts the bitfusion client.
    """

    def __init__(self, loop: EventLoop, kernel: KernelView, run_client: RunClientCommand) -> None:
        self._run_client = run_client
        self._asking: dict[ClientCommand, socket.socket] = {}
        self._loop = loop
        self._kernel = kernel
        self._listener: socket.socket | None = None
        self._path = ""

    def listen_in(self, folder: str) -> None:
        """Accept questions in the proxy's private folder, unless that is done. Called before each start.

        Raises:
            OSError: The folder can't hold a socket; its `filename` is the folder.
        """
        path = os.path.join(folder, NAME)
        if self._path == path and os.path.exists(path):
            return
        self._stop_listening()
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(path)
        except OSError as error:
            listener.close()
            raise OSError(error.errno, error.strerror, folder) from None
        listener.listen(4)
        listener.setblocking(False)
        self._listener, self._path = listener, path
        self._loop.on(listener.fileno(), self._on_connection)

    def _on_connection(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", peer)[1] not in (os.getuid(), 0):
            connection.close()
            return
        connection.settimeout(1.0)  # the magic sends its line at once; a slower peer is not the magic
        try:
            self._answer(connection, json.loads(connection.recv(_LONGEST_QUESTION)))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            connection.close()

    def _answer(self, connection: socket.socket, question: dict[str, object]) -> None:
        from bitfusion_client.errors import BitfusionError
        from bitfusion_kernel.magic import commands

        words = question["words"]
        if not isinstance(words, str):
            raise TypeError
        try:
            answer = commands.answer(words, self._kernel)
            path = self._kernel.find_client().path if isinstance(answer, commands.RunClient) else ""
        except BitfusionError as error:
            _send(connection, {"error": error.user_message})
            return
        if isinstance(answer, commands.AskClient):
            conclude = answer.conclude
            self._hear_client(connection, answer.subcommand, lambda output: {"text": conclude(output)})
        elif isinstance(answer, commands.RunClient):
            # What is shown as it comes, or as the client's own words where it fails, the kernel runs itself.
            render, by_itself = answer.render, {"client": answer.subcommand, "path": path}
            if render is None:
                _send(connection, by_itself)
                return
            self._hear_client(
                connection,
                answer.subcommand,
                lambda output: by_itself if output is None else {"bundle": render(output)},
            )
        else:
            text = answer.meanwhile if isinstance(answer, commands.AwaitGpu) else answer.text
            _send(connection, {"text": text})

    def _hear_client(
        self,
        connection: socket.socket,
        subcommand: str,
        conclude: Callable[[str | None], Mapping[str, object]],
    ) -> None:
        """The peer waits for what the client says, None if it fails; everybody else is served meanwhile."""
        from bitfusion_client.errors import BitfusionError
        from bitfusion_kernel.proxy.cells.client_command import ASK_LIMIT

        def tell(output: str | None) -> None:
            try:
                _send(connection, conclude(output))
            except BitfusionError as error:
                _send(connection, {"error": error.user_message})

        def on_end(client: ClientCommand, status: int | None) -> None:
            del self._asking[client]
            tell(client.output if status == 0 else None)

        try:
            client = self._run_client(subcommand, lambda _: None, on_end, ASK_LIMIT)
        except BitfusionError:
            tell(None)
        else:
            self._asking[client] = connection

    def close(self) -> None:
        """Stop accepting; end the clients that are being asked."""
        for client, connection in self._asking.items():
            client.end()
            connection.close()
        self._stop_listening()

    def _stop_listening(self) -> None:
        listener, self._listener, self._path = self._listener, None, ""
        if listener is not None:
            self._loop.off(listener.fileno())
            listener.close()


def _send(connection: socket.socket, answer: Mapping[str, object]) -> None:
    """Answer, unless the peer has left."""
    with connection:
        try:
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            return
