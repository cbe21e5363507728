"""What clients send on control: interrupt, shutdown, the debugger's requests; also SIGINT and SIGTERM."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.protocol.wire import DELIMITER, Message
from bitfusion_kernel.proxy.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.client_sockets import ClientChannel
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.kernel_link import KernelLink
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError

INTERRUPT_DELAY = 0.15
"""Seconds before an interrupt ends a wait: every shutdown and restart sends one 2 ms ahead of itself."""

_INTERRUPT_TIMER = "interrupt"


class ControlRequests:
    """Serves the control channel.

    `stop_wrapper` ends the `bitfusion run` that waits. `interrupts_expected` tells whether an interrupt is
    meant for this kernel: one that comes before the first request was meant for the kernel before a restart.
    """

    def __init__(
        self,
        channel: ClientChannel,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        offline: OfflineReplies,
        scheduler: CellScheduler,
        link: KernelLink,
        *,
        stop_wrapper: Callable[[], None],
        interrupts_expected: Callable[[], bool],
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._lifecycle = lifecycle
        self._offline = offline
        self._scheduler = scheduler
        self._link = link
        self._stop_wrapper = stop_wrapper
        self._interrupts_expected = interrupts_expected
        self._held: list[Message] = []
        self._handlers: dict[str, Callable[[Message], None]] = {
            "interrupt_request": self._on_interrupt,
            "shutdown_request": self._on_shutdown,
        }

    def watch(self) -> None:
        """Read control, and serve signals."""
        self._loop.on(self._channel.socket, self._on_readable)
        self._loop.on_signals((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._on_signal)

    def _on_readable(self) -> None:
        for message in self._channel.receive():
            self._handlers.get(message.type, self._on_other)(message)

    def _on_other(self, message: Message) -> None:
        if self._lifecycle.connected:
            self._link.send_control(message.frames)
            return
        reply = self._offline.reply(message.type, message.content)
        if reply is not None:
            self._channel.answer(message, reply)
        else:
            self._hold(message)

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT:
            self.interrupt()
        else:
            self._lifecycle.end(128 + number)

    # -- interrupt -------------------------------------------------------------------------------

    def _on_interrupt(self, message: Message) -> None:
        if self._lifecycle.connected and not self._scheduler.runs_commands:
            self._link.send_control(message.frames)  # the kernel answers
        else:
            self._channel.answer(message, {"status": "ok"})
            self.interrupt()

    def interrupt(self) -> None:
        """To whatever runs: the client command of a `%bitfusion` cell, the kernel, or the wait."""
        if self._scheduler.interrupt_commands():
            return
        if self._lifecycle.connected:
            self._link.interrupt()
        elif self._interrupts_expected():
            self._loop.set_timer(_INTERRUPT_TIMER, time.monotonic() + INTERRUPT_DELAY, self._cancel_wait)

    def _cancel_wait(self) -> None:
        """An error in the cell that waited; the proxy lives on. A wait that no cell shows goes on."""
        waited = self._scheduler.waited
        acquisition = self._lifecycle.acquisition
        if waited is None or acquisition is None or not self._lifecycle.cancellable:
            return
        from bitfusion_client.errors import WaitCancelled
        from bitfusion_kernel.gpu.waiting_notice import elapsed_text

        self._lifecycle.cancel()
        self._link.close()
        self._stop_wrapper()
        error = WaitCancelled(acquisition.request, f"interrupted after {elapsed_text(waited)} of waiting")
        self.refuse_held(error)
        self._scheduler.fail_wait(error)

    # -- shutdown --------------------------------------------------------------------------------

    def _on_shutdown(self, request: Message) -> None:
        if not self._lifecycle.connected:
            self.shut_down(request, self._channel)
            return
        self._loop.cancel_timer(_INTERRUPT_TIMER)
        self._lifecycle.relay_shutdown()
        self._link.send_control(request.frames)  # the kernel answers and ends, and the proxy with it

    def shut_down(self, request: Message, channel: ClientChannel) -> None:
        """Answer for the kernel and end; also called for a shutdown that came on shell."""
        self._loop.cancel_timer(_INTERRUPT_TIMER)
        content = {"status": "ok", "restart": bool(request.content.get("restart", False))}
        channel.answer(request, content, publish_reply=True)
        self._lifecycle.end(0)

    # -- held for the kernel ---------------------------------------------------------------------

    def _hold(self, message: Message) -> None:
        """Keep a request for the kernel; the debugger's get a kernel now."""
        self._held.append(message)
        if self._offline.needs_kernel(message.type):
            from bitfusion_client.errors import BitfusionError

            try:
                self._lifecycle.request()
            except BitfusionError as error:
                self.refuse_held(error)

    def refuse_held(self, error: BitfusionError) -> None:
        """A debugger that was turned on must hear that there is no kernel, or it waits for ever."""
        for message in self._held:
            content = {
                "type": "response",
                "request_seq": message.content.get("seq", 0),
                "success": False,
                "command": message.content.get("command", ""),
                "message": error.user_message,
            }
            self._channel.answer(message, content)
        self._held.clear()

    # -- from the kernel -------------------------------------------------------------------------

    def on_kernel_connected(self) -> None:
        """The kernel answers: an interrupt of the wait is void, what was held is sent."""
        self._loop.cancel_timer(_INTERRUPT_TIMER)
        for message in self._held:
            self._link.send_control(message.frames)
        self._held.clear()

    def relay_replies(self, replies: Iterable[list[bytes]]) -> None:
        """Pass on what the kernel replies."""
        for frames in replies:
            if frames[0] != DELIMITER:  # else the reply to an interrupt of the proxy's own
                self._channel.send(frames)
