"""Giving the GPUs back while the notebook goes on: its kernel ends, the proxy stays, a cell asks anew.

Used by `%bitfusion release` and `request --now`, and by whatever else decides that a kernel holds its GPUs
for nothing. Towards clients it is like a restart: comms are closed, and cells that run in other shells fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bitfusion_client.clock_time import clock_time
from bitfusion_client.errors import BitfusionError
from bitfusion_kernel.protocol.wire import InvalidMessage, Message, read_unchecked
from bitfusion_kernel.proxy.cells.cell_replies import CellReplies
from bitfusion_kernel.proxy.cells.request_queue import RequestsInKernel
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from bitfusion_kernel.proxy.kernel.kernel_link import KernelLink
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle, KernelState

if TYPE_CHECKING:
    from typing import Protocol

    from bitfusion_kernel.proxy.requests.control_requests import ControlRequests

    class StopWrapper(Protocol):
        """`SupervisorLink.stop`."""

        def __call__(self, *, spares_beside: bool = False) -> None:
            """Do it."""


COMMS_LIMIT = 1.0
"""Seconds for the kernel to say what comms there are; then it ends without that."""

_TIMER = "give back"


class GpuGivenBack(BitfusionError):
    """A cell ran in another shell meanwhile."""

    headline = "This notebook has given its GPU back, and with it ended the cell that ran."
    next_step = "run the cell again: it takes a GPU and begins with no variables."


class GiveBack:
    """The proxy has one.

    Args:
        loop: For the time limit.
        lifecycle: Is told.
        link: To the kernel that ends.
        in_kernel: What it runs.
        replies: Ends that.
        publisher: Closes comms.
        control: Forgets the kernel.
        stop_wrapper: Ends kernel and `bitfusion run`, and also the one beside unless it is spared.
        tell_next: Has the next cell that gets a GPU say something.
    """

    def __init__(
        self,
        loop: EventLoop,
        lifecycle: KernelLifecycle,
        link: KernelLink,
        in_kernel: RequestsInKernel,
        replies: CellReplies,
        publisher: Publisher,
        control: ControlRequests,
        stop_wrapper: StopWrapper,
        tell_next: Callable[[str], None],
    ) -> None:
        self._tell_next = tell_next
        self._loop = loop
        self._lifecycle = lifecycle
        self._link = link
        self._in_kernel = in_kernel
        self._replies = replies
        self._publisher = publisher
        self._control = control
        self._stop_wrapper = stop_wrapper
        self._questions: set[str] = set()
        self._comms: list[str] = []
        self._others_came = False
        self._on_done: list[Callable[[], None]] = []

    def begin(self, on_done: Callable[[], None], *, others_came: bool = False) -> None:
        """Give them back; `on_done` is called when they are, at once if there are none, or the kernel ends.

        `others_came` keeps those that have come beside them, for the next start.
        """
        if self._lifecycle.state is KernelState.RUNNING:
            self._others_came = others_came
            self._lifecycle.release()  # a cell that comes from now on waits for the next kernel
            self._questions = {self._link.ask("comm_info_request")}
            if not self._in_kernel.shells:  # a cell whose reply has just come may still say that it is over
                self._questions.add(self._link.ask("comm_info_request", behind_cells=True))
            self._loop.set_timer(_TIMER, time.monotonic() + COMMS_LIMIT, self._end_kernel)
        elif self._lifecycle.state is not KernelState.RELEASING:
            on_done()
            return
        self._on_done.append(on_done)

    def on_reply(self, frames: list[bytes]) -> bool:
        """The kernel has replied to a question of the proxy's; whether it was one of these."""
        try:
            reply = read_unchecked(frames)
        except InvalidMessage:
            return False
        question = str(reply.parent_header.get("msg_id"))
        if question not in self._questions:
            return False
        self._questions.remove(question)
        self._comms = _comms(reply)
        if not self._questions:  # the link is closed when whoever reads it has done so
            self._loop.set_timer(_TIMER, time.monotonic(), self._end_kernel)
        return True

    def _end_kernel(self) -> None:
        self._questions.clear()
        comms, self._comms = self._comms, []
        self._loop.cancel_timer(_TIMER)
        self._stop_wrapper(spares_beside=self._others_came)
        self._link.close()
        self._control.on_kernel_gone(GpuGivenBack())
        for cell in self._in_kernel.clear():
            self._replies.end(cell, GpuGivenBack())
        for comm in comms:
            self._publisher.publish("comm_close", {"comm_id": comm, "data": {}})

    def on_wrapper_exited(self) -> None:
        """The pool has them."""
        if self._questions:  # kernel or wrapper have ended by themselves meanwhile
            self._end_kernel()
        at = clock_time(time.time(), time.time())
        self._tell_next(f"This notebook gave its GPU back at {at}: it begins anew, with no variables.")
        waiting, self._on_done = self._on_done, []
        for on_done in waiting:
            on_done()


def _comms(reply: Message) -> list[str]:
    comms = reply.content.get("comms")
    return [comm for comm in comms if isinstance(comm, str)] if isinstance(comms, dict) else []
