"""The socket on which other processes of this user ask the proxy: `%bitfusion`, and who shows states.

One JSON line in. {"words": "request -n 2"} is a line of the magic's. The answer is {"text": …} to print,
{"bundle": …} to display, {"error": …} to print on stderr, or {"client": "list_gpus", "path": …}: the kernel
then runs the bitfusion client and prints what it says. What the line changes happens at once, as in a cell of
its own; while code runs, GPUs are given back when that is over. {"do": "keep"} counts as work for the release
of an idle kernel, and is answered with {"text": …}. {"state": "now"} is answered with the kernel's state,
{"state": "changes"} with a line at each change of it, beginning with the one now
(`bitfusion_client.kernel_state`).

The socket lies in the proxy's 0700 folder. A second one has the same path as its name alone (`unix(7)`,
abstract): it is there when the folder was removed, for kernels of this machine. The peer's user is checked on
both.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from bitfusion_client.kernel_state.proxy_socket import NAME, is_ours
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_kernel.magic.commands import AwaitGpu, GiveBack, Resize, Text
    from bitfusion_kernel.magic.kernel_view import KernelView
    from bitfusion_kernel.proxy.cells.client_command import ClientCommand, RunClientCommand
    from bitfusion_kernel.proxy.orders import Orders
    from bitfusion_kernel.proxy.state_board import StateBoard

MOST_PEERS = 64
"""Connections at a time."""

LONGEST_ORDER = 40
"""Characters that are repeated of one that is not known."""

MOST_WATCHERS = 16
"""Of them such as are told each change of the state."""


class MagicSocket:
    """Accepts questions while the proxy lives. Answers are short, so each is served in one go.

    Args:
        loop: Watches the socket.
        kernel: The kernel as commands see it.
        run_client: Starts the bitfusion client.
        board: The kernel's state.
        orders: Gives, when it is needed, what does what is asked for.
    """

    def __init__(
        self,
        loop: EventLoop,
        kernel: KernelView,
        run_client: RunClientCommand,
        board: StateBoard,
        orders: Callable[[], Orders],
    ) -> None:
        self._orders = orders
        self._run_client = run_client
        self._board = board
        self._asking: dict[ClientCommand, Peer] = {}
        self._peers: set[Peer] = set()
        self._watchers: set[Peer] = set()
        self._loop = loop
        self._kernel = kernel
        self._listeners: list[socket.socket] = []
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
        try:
            self._listen(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, folder) from None
        self._path = path
        try:
            self._listen("\0" + path)
        except OSError:
            return  # somebody has taken the name, or this sandbox has none

    def _listen(self, address: str) -> None:
        listener = socket.socket(socket.AF_UNIX)
        try:
            if os.path.lexists(address):  # of the proxy before this one, which was killed
                os.unlink(address)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
        listener.listen(MOST_PEERS)
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.on(listener.fileno(), lambda: self._on_connection(listener))

    def _on_connection(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        if is_ours(connection) and len(self._peers) < MOST_PEERS:
            self._peers.add(Peer(self._loop, connection, self._on_question, self._forget))
        else:
            connection.close()

    def _forget(self, peer: Peer) -> None:
        self._peers.discard(peer)
        self._watchers.discard(peer)
        self._board.forget(peer)

    def _on_question(self, peer: Peer, question: dict[str, Any]) -> None:
        words, state, order = question.get("words"), question.get("state"), question.get("do")
        if isinstance(words, str):
            self._answer(peer, words)
        elif state == "now":
            peer.tell(self._board.look())
        elif state == "changes":
            self._add_watcher(peer)
        elif isinstance(order, str):
            self._do(peer, order)
        else:
            peer.end()

    def _do(self, peer: Peer, order: str) -> None:
        from bitfusion_client.errors import BitfusionError

        if order != "keep":
            peer.tell({"error": f"this kernel can't {order[:LONGEST_ORDER]!r}: all that it can do is keep"})
            return
        try:
            peer.tell({"text": self._orders().keep()})
        except BitfusionError as error:
            peer.tell({"error": error.user_message})

    def _add_watcher(self, peer: Peer) -> None:
        if len(self._watchers) >= MOST_WATCHERS:
            peer.tell({"error": f"this kernel's state is watched by {MOST_WATCHERS} processes already"})
            return
        self._watchers.add(peer)
        self._board.watch(peer, lambda state: peer.tell(state, last=False))

    def _answer(self, peer: Peer, words: str) -> None:
        from bitfusion_client.errors import BitfusionError
        from bitfusion_kernel.magic import commands

        try:
            answer = commands.answer(words, self._kernel)
            path = self._kernel.find_client().path if isinstance(answer, commands.RunClient) else ""
        except BitfusionError as error:
            peer.tell({"error": error.user_message})
            return
        if isinstance(answer, commands.AskClient):
            conclude = answer.conclude
            self._hear_client(
                peer, answer.subcommand, lambda output: self._told(conclude(output)), answer.limit
            )
        elif isinstance(answer, commands.RunClient):
            # What is shown as it comes, or as the client's own words where it fails, the kernel runs itself.
            render, by_itself = answer.render, {"client": answer.subcommand, "path": path}
            if render is None:
                peer.tell(by_itself)
                return
            self._hear_client(
                peer,
                answer.subcommand,
                lambda output: by_itself if output is None else {"bundle": render(output)},
            )
        else:
            try:
                told = self._told(answer)
            except BitfusionError as error:
                told = {"error": error.user_message}
            peer.tell(told)

    def _told(self, answer: Text | AwaitGpu | GiveBack | Resize) -> dict[str, object]:
        """The answer to a line that nobody can be asked about, and it is done. Raises BitfusionError."""
        from bitfusion_kernel.magic import commands

        if isinstance(answer, commands.Text):
            return {"text": answer.text}
        if isinstance(answer, commands.AwaitGpu):
            return {"text": self._orders().acquire(answer)}
        if isinstance(answer, commands.Resize):
            return {"text": self._orders().resize(answer)}
        return {"text": self._orders().give_back(answer)}

    def _hear_client(
        self,
        peer: Peer,
        subcommand: str,
        conclude: Callable[[str | None], Mapping[str, object]],
        limit: float | None = None,
    ) -> None:
        """The peer waits for what the client says, None if it fails; everybody else is served meanwhile."""
        from bitfusion_client.errors import BitfusionError
        from bitfusion_kernel.proxy.cells.client_command import ASK_LIMIT

        def tell(output: str | None) -> None:
            try:
                peer.tell(conclude(output))
            except BitfusionError as error:
                peer.tell({"error": error.user_message})

        def on_end(client: ClientCommand, status: int | None) -> None:
            del self._asking[client]
            tell(client.output if status == 0 else None)

        try:
            client = self._run_client(subcommand, lambda _: None, on_end, limit or ASK_LIMIT)
        except BitfusionError:
            tell(None)
        else:
            peer.rest()
            self._asking[client] = peer

    def close(self, *, restarts: bool = False) -> None:
        """Stop accepting; end the clients that are being asked, and every connection.

        Those who wait for an answer are told that the kernel ends, or `restarts`.
        """
        if self._asking:
            from bitfusion_kernel.magic import commands

            why = commands.KernelRestarts() if restarts else commands.KernelEnds()
            for client, peer in self._asking.items():
                client.end()
                peer.tell({"error": why.user_message})
            self._asking.clear()
        for peer in list(self._peers):
            peer.end()
        self._stop_listening()

    def _stop_listening(self) -> None:
        self._path = ""
        while self._listeners:
            listener = self._listeners.pop()
            self._loop.off(listener.fileno())
            listener.close()
