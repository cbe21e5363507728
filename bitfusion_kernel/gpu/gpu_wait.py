"""Waiting for a GPU: asking for it, showing the wait in the cell that wants it, ending the wait.

The wait belongs to the kernel, the notice to one cell; a wait begun by `acquire = start` or by a debugger
has no cell until one arrives.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from bitfusion_kernel.gpu import waiting_notice

if TYPE_CHECKING:
    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.protocol.wire import Message
    from bitfusion_kernel.proxy.proxy import Proxy
    from bitfusion_kernel.proxy.request_queue import QueuedRequest


class GpuWait:
    """The proxy has one, used for every wait in turn."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.cell: QueuedRequest | None = None
        """The cell that shows the wait and gets its error."""
        self.held_control: list[Message] = []
        self._display_id = ""
        self._since = 0.0
        self._shown = False

    # -- asking --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a wrapper, unless there is one (also one that is just ending: then on its end).

        Raises BitfusionError if the GPU can't even be asked for.
        """
        starter = self._proxy.starter
        if starter.acquisition is not None:
            return
        if starter.failed_early is not None:
            error, starter.failed_early = starter.failed_early, None
            raise error
        starter.start()

    def begin_for(self, cell: QueuedRequest) -> None:
        """The same for a cell. Raises BitfusionError, also if the GPU is taken by hand only."""
        starter = self._proxy.starter
        if starter.acquisition is None and starter.settings.acquire == "manual":
            from bitfusion_client.errors import WaitCancelled

            raise WaitCancelled(
                starter.request,
                "this kernel takes a GPU only when it is told to (acquire = manual)",
                "run `%bitfusion acquire` in a cell, then this cell again.",
            )
        self.begin()
        self.show_in(cell)

    def hold_control(self, message: Message, *, needs_kernel: bool) -> None:
        """Keep a control message for the kernel; one that turns the debugger on gets a kernel now."""
        from bitfusion_client.errors import BitfusionError

        self.held_control.append(message)
        if needs_kernel:
            try:
                self.begin()
            except BitfusionError as error:
                self.refuse_held_control(error)

    # -- showing -------------------------------------------------------------------------------

    def show_in(self, cell: QueuedRequest) -> None:
        """From now on the wait is shown in this cell, unless it is over very soon."""
        if self.cell is cell:
            return
        self.cell = cell
        self._display_id = f"bitfusion-wait-{os.urandom(8).hex()}"
        self._since = time.monotonic()
        self._shown = False
        self._proxy.loop.set_timer("notice", self._since + waiting_notice.SHOW_AFTER, self._show)

    def refresh(self) -> None:
        """The place has changed: show it at once, unless the wait is too young to be shown."""
        if self.cell is not None and time.monotonic() >= self._since + waiting_notice.SHOW_AFTER:
            self._show()

    def _show(self) -> None:
        acquisition = self._proxy.starter.acquisition
        now = time.monotonic()
        self._proxy.loop.set_timer("notice", now + waiting_notice.UPDATE_EVERY, self._show)
        if self.cell is None or acquisition is None:
            return
        if not self._shown:
            silent_until = self._since + waiting_notice.SHOW_SILENT_WAIT_AFTER
            if acquisition.place is None and now < silent_until:
                self._proxy.loop.set_timer("notice", silent_until, self._show)
                return
            if acquisition.granted:
                return  # a wait that is over before it was shown would only flicker
        data = waiting_notice.render(
            acquisition.request.describe(),
            now - self._since,
            acquisition.place,
            acquisition.of,
            acquisition.ahead,
            acquisition.granted,
        )
        self._proxy.line.announce(self.cell)
        self._proxy.publisher.display(data, self._display_id, self.cell.message.header, update=self._shown)
        self._shown = True

    def end_notice(self) -> None:
        """Leave nothing of the wait in the notebook; its display is never touched again."""
        self._proxy.loop.cancel_timer("notice")
        if self.cell is not None and self._shown:
            self._proxy.publisher.clear(self.cell.message.header)
        self.cell = None
        self._shown = False

    # -- ending --------------------------------------------------------------------------------

    def cancel(self) -> None:
        """The user's interrupt: an error in the cell that waited; the kernel lives."""
        acquisition = self._proxy.starter.acquisition
        if acquisition is None or self.cell is None or self._proxy.running:
            return
        from bitfusion_client.errors import WaitCancelled

        acquisition.cancelled = True
        self._proxy.supervisor.stop()
        waited = waiting_notice.elapsed_text(time.monotonic() - self._since)
        self.fail(WaitCancelled(acquisition.request, f"interrupted after {waited} of waiting"))

    def fail(self, error: BitfusionError) -> None:
        """The wait is over without a GPU: the cell that waited says why."""
        cell = self.cell
        self.end_notice()
        self.refuse_held_control(error)
        if cell is not None:
            self._proxy.line.fail_waiting(cell, error)

    def refuse_held_control(self, error: BitfusionError) -> None:
        """A debugger that was turned on must hear that there is no kernel, or it waits for ever."""
        for message in self.held_control:
            content = {
                "type": "response",
                "request_seq": message.content.get("seq", 0),
                "success": False,
                "command": message.content.get("command", ""),
                "message": error.user_message,
            }
            self._proxy.publisher.answer(self._proxy.clients.control, message, content)
        self.held_control.clear()
