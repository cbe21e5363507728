"""The kernel as the proxy sees it: joined when it has started, handed over to, relayed from, buried.

Held messages are sent only when the kernel answers on control and its iopub has been joined: before
that the first output would be lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import zmq

from bitfusion_kernel.protocol.wire import DELIMITER, is_type, read_unchecked
from bitfusion_kernel.proxy.kernel_sockets import PROBE_EVERY, KernelSockets, OutputRelay

if TYPE_CHECKING:
    from bitfusion_kernel.proxy.proxy import Proxy


class KernelLink:
    """Made when a launcher reports its kernel; closed when its wrapper has ended."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        assert proxy.starter.kernel_connection is not None
        self._sockets = KernelSockets(proxy.context, proxy.starter.kernel_connection, proxy.wire)
        self._output: OutputRelay | None = None
        proxy.loop.on(self._sockets.control, self._on_joining)
        proxy.loop.on(self._sockets.iopub, self._on_joining)
        self._probe()

    # -- joining ---------------------------------------------------------------------------------

    def _probe(self) -> None:
        self._on_joining()
        if self._output is not None:
            return
        self._sockets.probe()
        self._proxy.loop.set_timer("probe", time.monotonic() + PROBE_EVERY, self._probe)

    def _on_joining(self) -> None:
        sockets = self._sockets
        if self._output is not None:
            return
        if sockets.control.poll(0):
            sockets.on_control()
        while not sockets.ready and sockets.iopub.poll(0):
            frames = sockets.on_iopub()
            if frames is not None:
                self._proxy.clients.iopub.send_multipart(frames)
        if sockets.ready:
            self._hand_over()

    def _hand_over(self) -> None:
        """From here on the kernel answers. The notice goes first, then the messages that waited."""
        proxy, loop, sockets = self._proxy, self._proxy.loop, self._sockets
        loop.cancel_timer("probe")
        proxy.wait.end_notice()
        loop.off(sockets.iopub)
        loop.off(proxy.clients.iopub)
        self._output = OutputRelay(proxy.context, proxy.clients.iopub, sockets.iopub)
        proxy.publisher.iopub = self._output.inlet
        loop.on(self._output.inlet, proxy.on_subscription)
        loop.on(sockets.control, self._on_control)
        loop.on(sockets.shell, self._on_shell)
        loop.on(sockets.stdin, self._on_stdin)
        proxy.on_running()

    # -- to the kernel ---------------------------------------------------------------------------

    def send_shell(self, frames: list[bytes]) -> bool:
        """False if the kernel's inbox is full. Then Jupyter's must fill up, not our memory: shell is not
        read again until there is room."""
        try:
            self._sockets.shell.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self._proxy.loop.off(self._proxy.clients.shell)
            self._proxy.loop.on(self._sockets.shell, self._on_shell, writable=True)
            return False
        return True

    def send_control(self, frames: list[bytes]) -> None:
        """Control is never that full; a kernel that reads none of it loses what comes then."""
        try:
            self._sockets.control.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return

    def send_stdin(self, frames: list[bytes]) -> None:
        """An answer to `input()`."""
        try:
            self._sockets.stdin.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            return

    # -- from the kernel -------------------------------------------------------------------------

    def _on_shell(self) -> None:
        proxy = self._proxy
        if not proxy.loop.watches(proxy.clients.shell):
            proxy.watch_shell()
            proxy.loop.on(self._sockets.shell, self._on_shell)
        self._relay_replies()
        proxy.line.advance()

    def _relay_replies(self) -> None:
        """Replies leave first; the account of cells is kept while the client reads."""
        clients, line = self._proxy.clients, self._proxy.line
        for frames in _received(self._sockets.shell):
            if line.has_answered_early and line.take_answered_early(read_unchecked(frames)):
                line.on_execute_reply(read_unchecked(frames))
                continue
            clients.shell.send_multipart(frames)
            if is_type(frames, b"execute_reply"):
                line.on_execute_reply(read_unchecked(frames))

    def _on_control(self) -> None:
        for frames in _received(self._sockets.control):
            if frames[0] != DELIMITER:  # else the answer to an interrupt of our own
                self._proxy.clients.control.send_multipart(frames)

    def _on_stdin(self) -> None:
        for frames in _received(self._sockets.stdin):
            self._proxy.clients.stdin.send_multipart(frames)

    # -- its end ---------------------------------------------------------------------------------

    def relay_last_words(self) -> None:
        """Pass on what the kernel had answered before it died."""
        if self._output is not None:
            self._relay_replies()
            self._on_control()

    def close(self) -> None:
        """Close the sockets; the output relay closes its two when the context ends."""
        loop, sockets = self._proxy.loop, self._sockets
        loop.cancel_timer("probe")
        for socket in (sockets.shell, sockets.control, sockets.stdin):
            loop.off(socket)
            socket.close(linger=0)
        if self._output is None:
            loop.off(sockets.iopub)
            sockets.iopub.close(linger=0)
        else:
            loop.off(self._output.inlet)
            self._output.inlet.close(linger=500)


def _received(socket: zmq.Socket[bytes]) -> Iterator[list[bytes]]:
    while True:
        try:
            yield socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
