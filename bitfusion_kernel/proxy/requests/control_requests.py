"""What clients send on control: interrupt, shutdown, the debugger's requests."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.protocol.wire import DELIMITER, Message
from bitfusion_kernel.proxy.cells.cell_replies import as_exception
from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.cells.request_queue import RequestsInKernel
from bitfusion_kernel.proxy.cells.running_commands import RunningCommands
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel
from bitfusion_kernel.proxy.kernel.kernel_link import KernelLink
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle, KernelState

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.proxy.kernel.kernel_interrupt import KernelInterrupt

INTERRUPT_DELAY = 0.15
"""Seconds before an interrupt ends a wait: every shutdown and restart sends one 2 ms ahead of itself."""

MOST_HELD = 100
"""Messages on control that wait for the kernel; a debugger sends about ten."""

_INTERRUPT_TIMER = "interrupt"


class ControlRequests:
    """Serves the control channel.

    `stop_wrapper` ends the `bitfusion run` that waits; `keep_for_restart` has it kept for the next proxy.
    `signal_kernel` sends the kernel a signal, which
    interrupts code of any kind; with `interrupt_by_message` the kernel gets a message instead, which needs a
    thread of its that code in a cell may hold up. `interrupts_expected` tells whether an interrupt can
    mean this kernel: before the first request nothing runs that anybody would interrupt. `started_at`
    gives the time of this kernel's start, in seconds of `time.time()`. `why_given_up` is asked when a
    kernel that does not run is shut down for good: what the cell that waits shows, if anything.
    """

    def __init__(
        self,
        channel: ClientChannel,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        offline: OfflineReplies,
        in_kernel: RequestsInKernel,
        commands: RunningCommands,
        display: WaitDisplay,
        scheduler: CellScheduler,
        link: KernelLink,
        *,
        stop_wrapper: Callable[[], None],
        keep_for_restart: Callable[[], None],
        signal_kernel: Callable[[int], None],
        interrupt_by_message: bool,
        interrupts_expected: Callable[[], bool],
        started_at: Callable[[], float],
        why_given_up: Callable[[], BitfusionError | None],
    ) -> None:
        self._channel = channel
        self._loop = loop
        self._lifecycle = lifecycle
        self._offline = offline
        self._in_kernel = in_kernel
        self._commands = commands
        self._display = display
        self._scheduler = scheduler
        self._link = link
        self._stop_wrapper = stop_wrapper
        self._keep_for_restart = keep_for_restart
        self._signal_kernel = signal_kernel
        self._interrupt_by_message = interrupt_by_message
        self._interrupts_expected = interrupts_expected
        self._started_at = started_at
        self._why_given_up = why_given_up
        self._asks_anew = False
        self._held: list[Message] = []
        self._kernel_interrupt: KernelInterrupt | None = None
        self.on_own_reply: Callable[[list[bytes]], object] = lambda frames: None
        """Called with what the kernel replies to the proxy itself."""
        self.shut_down_for_good = False
        """Whether a shutdown came that is no restart: nobody follows this proxy."""
        self.restart_follows = False
        """Whether a restart came: the next proxy goes on with what there is."""
        self._handlers: dict[str, Callable[[Message], None]] = {
            "interrupt_request": self._on_interrupt,
            "shutdown_request": self._on_shutdown,
        }

    def watch(self) -> None:
        """Read control."""
        self._loop.on(self._channel.socket, self._on_readable)

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

    # -- interrupt -------------------------------------------------------------------------------

    def _on_interrupt(self, message: Message) -> None:
        from bitfusion_kernel.protocol.message_date import meant_for_predecessor

        if meant_for_predecessor(message.header, started_at=self._started_at(), now=time.time()):
            self._channel.answer(message, {"status": "ok"})
        elif self._lifecycle.connected and not self._commands.run_in(None):
            self._commands.interrupt()
            self._interrupt_kernel(message)
        else:
            self._channel.answer(message, {"status": "ok"})
            self.interrupt()

    def interrupt(self) -> None:
        """To whatever runs: the client command of a `%bitfusion` cell, the kernel, or the wait."""
        if self._commands.interrupt():
            return
        if self._lifecycle.connected:
            self._interrupt_kernel()
        elif self._interrupts_expected() and self._scheduler.has_cells:
            self._loop.set_timer(_INTERRUPT_TIMER, time.monotonic() + INTERRUPT_DELAY, self._end_wait)

    def _end_wait(self) -> None:
        """No shutdown has followed. A wait that has ended by itself has become the kernel that is meant."""
        if self._lifecycle.connected:
            self.interrupt()
        else:
            self._cancel_wait()

    def _interrupt_kernel(self, request: Message | None = None) -> None:
        if self._kernel_interrupt is None:
            from bitfusion_kernel.proxy.kernel.kernel_interrupt import KernelInterrupt, takes_sigint

            acquisition = self._lifecycle.acquisition
            pid = acquisition.kernel_pid if acquisition is not None else None
            self._kernel_interrupt = KernelInterrupt(
                self._loop,
                self._deliver_interrupt,
                running_cell=lambda: self._in_kernel.head(None),
                takes_interrupts=lambda: pid is None or takes_sigint(pid),
                answer=lambda message: self._channel.answer(message, {"status": "ok"}),
            )
        self._kernel_interrupt.send(request)

    def _deliver_interrupt(self, request: Message | None) -> None:
        if not self._interrupt_by_message:
            self._signal_kernel(signal.SIGINT)
            if request is not None:
                self._channel.answer(request, {"status": "ok"})
        elif request is not None:
            self._link.send_control(request.frames)  # the kernel answers
        else:
            self._link.ask("interrupt_request")  # the reply is for nobody
        self._scheduler.on_interrupted()

    def _cancel_wait(self) -> None:
        """An interrupt: a wait that no cell shows goes on."""
        if self._display.waited is not None:
            self.cancel_wait("interrupted")

    def ask_anew(self) -> bool:
        """Another size has been chosen: what waits is asked for again, at the end of the queue.

        False if nothing waits, or what waited was cancelled.
        """
        cancelled = self._lifecycle.state is KernelState.CANCELLING and not self._asks_anew
        if cancelled and self._display.waited is None:
            return False
        self._asks_anew = self._end_what_waits()
        return self._asks_anew

    def ask_after_cancelling(self) -> None:
        """A GPU is wanted after all: it is asked for when the wait that was cancelled has ended."""
        self._asks_anew = True

    def _end_what_waits(self) -> bool:
        if self._lifecycle.cancellable:
            self._lifecycle.cancel()
            self._link.close()
            self._stop_wrapper()
            return True
        return False

    def cancel_wait(self, how: str) -> bool:
        """An error in the cell that waited; the proxy lives on. False if nothing waits."""
        acquisition, waited = self._lifecycle.acquisition, self._display.waited
        ends = self._lifecycle.state is KernelState.CANCELLING
        if acquisition is None or not self._lifecycle.cancellable or (ends and waited is None):
            return False
        from bitfusion_client.clock_time import elapsed_text
        from bitfusion_client.errors import WaitCancelled

        if waited is None:
            waited = time.monotonic() - acquisition.asked_at
        self._end_what_waits()
        self._asks_anew = False
        next_step = ""
        if self._display.unattended:
            from bitfusion_kernel.gpu.time_limits import ENDED_BY_LIMIT

            next_step = ENDED_BY_LIMIT
        answered = f"{how} after {elapsed_text(waited)} of waiting"
        error = WaitCancelled(acquisition.asked_for, answered, next_step)
        self.refuse_held(error)
        self._scheduler.fail_wait(error)
        return True

    # -- shutdown --------------------------------------------------------------------------------

    def _on_shutdown(self, request: Message) -> None:
        if not self._lifecycle.connected:
            self.shut_down(request, self._channel)
            return
        self._note_shutdown(request)
        self._loop.cancel_timer(_INTERRUPT_TIMER)
        if self._kernel_interrupt is not None:
            self._kernel_interrupt.flush()
        self._lifecycle.relay_shutdown()
        self._link.send_control(request.frames)  # the kernel answers and ends, and the proxy with it

    def shut_down(self, request: Message, channel: ClientChannel) -> None:
        """Answer for the kernel and end; also called for a shutdown that came on shell."""
        self._loop.cancel_timer(_INTERRUPT_TIMER)
        restart = self._note_shutdown(request)
        self._scheduler.stop_waiting(None if restart else self._why_given_up())
        content = {"status": "ok", "restart": restart}
        channel.answer(request, content, publish_reply=True)
        self._lifecycle.end(0)

    def _note_shutdown(self, request: Message) -> bool:
        """Whether it is a restart, from the last of several."""
        self.restart_follows = bool(request.content.get("restart", False))
        self.shut_down_for_good = not self.restart_follows
        if self.restart_follows:
            self._keep_for_restart()
        return self.restart_follows

    # -- held for the kernel ---------------------------------------------------------------------

    def _hold(self, message: Message) -> None:
        """Keep what a debugger asks, who gets a kernel now, and what has no reply; refuse the rest."""
        wants_reply = message.type.endswith("_request")
        if len(self._held) < MOST_HELD and (self._offline.needs_kernel(message.type) or not wants_reply):
            self._held.append(message)
            self._request_kernel_for(message)
        elif wants_reply:
            from bitfusion_kernel.proxy.requests.refusals import NoKernelYet

            self._channel.answer(message, _refusal(message, NoKernelYet()))

    def _request_kernel_for(self, message: Message) -> None:
        if self._offline.needs_kernel(message.type):
            from bitfusion_client.errors import BitfusionError

            try:
                self._lifecycle.request()
            except BitfusionError as error:
                self.refuse_held(error)

    def on_kernel_gone(self, error: BitfusionError) -> None:
        """The kernel has been ended, and another may come."""
        self._kernel_interrupt = None
        self.refuse_held(error)

    def refuse_held(self, error: BitfusionError) -> None:
        """Whoever asked for a kernel must hear that there is none, or waits for ever."""
        for message in self._held:
            self._channel.answer(message, _refusal(message, error))
        self._held.clear()

    def on_wait_over(self) -> None:
        """A wait has ended without a kernel: what has come since and needs one asks again."""
        for message in list(self._held):
            self._request_kernel_for(message)
        if self._asks_anew:  # also where no cell waits, as with `acquire = start`
            self._asks_anew = False
            self._lifecycle.request_early()

    # -- from the kernel -------------------------------------------------------------------------

    def on_kernel_connected(self) -> None:
        """The kernel answers: what was held is sent. An interrupt of the wait goes there in its time."""
        for message in self._held:
            self._link.send_control(message.frames)
        self._held.clear()

    def relay_replies(self, replies: Iterable[list[bytes]]) -> None:
        """Pass on what the kernel replies to clients."""
        for frames in replies:
            if frames[0] != DELIMITER:
                self._channel.send(frames)
            else:
                self.on_own_reply(frames)


def _refusal(message: Message, error: BitfusionError) -> dict[str, Any]:
    """The content of a reply that says why there is no kernel."""
    if message.type == "debug_request":
        return {
            "type": "response",
            "request_seq": message.content.get("seq", 0),
            "success": False,
            "command": message.content.get("command", ""),
            "message": error.user_message,
        }
    return {"status": "error", **as_exception(error)}
