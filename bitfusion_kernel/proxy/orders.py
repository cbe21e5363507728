"""What is asked for from outside the order of cells: done at once, or when the code that runs is over.

Such an order comes on the proxy's socket: from `%bitfusion` in the middle of a cell, which runs then, or from
a program such as JupyterLab's extension, while it may be that none does. What it means stands in
`magic.commands`; each method here answers with a sentence that says what happens. Whoever has asked may have
left by then, that changes nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bitfusion_client.clock_time import clock_time
from bitfusion_kernel.magic.commands import KernelEnds, NobodyToAsk
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle, KernelState

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_client.errors import BitfusionError
    from bitfusion_kernel.magic import commands
    from bitfusion_kernel.protocol.wire import Wire
    from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
    from bitfusion_kernel.proxy.cells.request_queue import RequestsInKernel
    from bitfusion_kernel.proxy.cells.running_commands import RunningCommands
    from bitfusion_kernel.proxy.give_back import GiveBack
    from bitfusion_kernel.proxy.idle_watch import IdleWatch
    from bitfusion_kernel.proxy.requests.control_requests import ControlRequests
    from bitfusion_kernel.proxy.resize import Resize

NO_CELL = {"code": "", "allow_stdin": False}
"""Of the request that stands in the order of cells while another size is asked for."""


class Orders:
    """The proxy has one, for its socket.

    Args:
        wire: Makes a request.
        lifecycle: Is asked for a GPU.
        in_kernel: Whether code runs.
        running: The `%bitfusion` cells that run.
        scheduler: Runs the cells that come meanwhile.
        control: Knows of a wait that has been cancelled.
        give_back: Gives the GPUs back.
        resize: Asks for others beside them.
        idle: What gives the GPUs back by itself, if anything.
        told: What `%bitfusion`, and the next cell that gets a GPU, say.
    """

    def __init__(
        self,
        wire: Wire,
        lifecycle: KernelLifecycle,
        in_kernel: RequestsInKernel,
        running: RunningCommands,
        scheduler: CellScheduler,
        control: ControlRequests,
        give_back: GiveBack,
        resize: Resize,
        idle: Callable[[], IdleWatch | None],
        told: list[str],
    ) -> None:
        self._wire = wire
        self._lifecycle = lifecycle
        self._in_kernel = in_kernel
        self._running = running
        self._scheduler = scheduler
        self._control = control
        self._give_back = give_back
        self._resize = resize
        self._idle = idle
        self._told = told
        self._size_not_got = ""
        self._when_idle: Callable[[], None] | None = None

    # -- what is asked for -------------------------------------------------------------------------

    def acquire(self, order: commands.AwaitGpu) -> str:
        """Ask for a GPU, after the end of what there may still be. Raises BitfusionError."""
        state = self._lifecycle.state
        if state is KernelState.RELEASING:
            self._give_back.begin(self._lifecycle.request_early)
        elif state is KernelState.CANCELLING:
            self._control.ask_after_cancelling()
        else:
            self._lifecycle.request(told_to=True)
        return order.meanwhile

    def give_back(self, order: commands.GiveBack) -> str:
        """Give the GPUs back, once. Raises NobodyToAsk, KernelEnds."""
        self._check(order.question)
        trouble = order.note()
        begin = self._give_back.begin
        on_done = self._lifecycle.request_early if order.acquires else _nothing
        if self._in_kernel.shells:
            self._when_idle = lambda: begin(on_done)
            self._scheduler.ask_unsure()
            told = f"When this cell is over: {order.done}"
        else:
            self._resize.cancel("given back")
            begin(on_done)
            told = order.meanwhile
        return "\n".join(filter(None, (told, trouble)))

    def resize(self, order: commands.Resize) -> str:
        """Exchange the GPUs; while code runs as `give_back`, as nobody could be told that nothing came.

        Raises:
            BitfusionError: Nobody can be asked, the kernel ends, or another size is asked for already.
        """
        self._check(order.question)
        if self._in_kernel.shells:
            return self.give_back(order.give_back)
        asked_at = time.time()
        place = _Place(self._wire, self._resize)

        def on_end(error: BitfusionError | None) -> None:
            if error is None:
                if trouble := order.give_back.note():
                    self._told.append(trouble)
                self._give_back.begin(self._lifecycle.request_early, others_came=True)
            elif self._lifecycle.connected:
                at = clock_time(asked_at, time.time())
                why = f"{error.asked} was asked for at {at}: {error.answered}"
                self._tell_not_got(f"This kernel has kept {order.kept}. {why}.")
            self._running.remove(place.cell)
            self._scheduler.advance()

        self._resize.start(order.request, order.kept, None, on_end)
        self._running.add(place)
        return order.meanwhile

    def _tell_not_got(self, text: str) -> None:
        """Nobody waits to be told: `%bitfusion` says it, and only the newest."""
        if self._size_not_got in self._told:
            self._told.remove(self._size_not_got)
        self._size_not_got = text
        self._told.append(text)

    def keep(self) -> str:
        """Somebody wants the GPUs to stay although nothing works: the time begins anew. Raises KernelEnds."""
        state, idle = self._lifecycle.state, self._idle()
        if state is KernelState.SHUTTING_DOWN:
            raise KernelEnds
        if state is KernelState.RELEASING:
            return "Too late: this kernel is already giving its GPU back."
        if not self._lifecycle.connected:
            return "This kernel holds no GPU."
        if idle is None:
            return "This kernel keeps its GPU: idle_release is not set."
        idle.touched("KEEP")
        now = time.time()
        if (at := idle.release_at) is None:
            return "This kernel keeps its GPU: code runs on it."
        return f"This kernel keeps its GPU until {clock_time(at, now)} at least, and longer if it works."

    def _check(self, question: str) -> None:
        if self._lifecycle.state is KernelState.SHUTTING_DOWN:
            raise KernelEnds
        if question:
            raise NobodyToAsk

    # -- what happens --------------------------------------------------------------------------------

    def on_idle(self) -> None:
        """The kernel has finished all that it was sent: what waits for that is done."""
        if self._when_idle is not None:
            begin, self._when_idle = self._when_idle, None
            begin()

    def on_kernel_gone(self) -> None:
        """What was to be given back is on its way already: the next kernel has nothing to do with it."""
        self._when_idle = None


class _Place:
    """Holds a place among the `%bitfusion` cells, so that cells wait for the other size, as behind a cell."""

    waits_for_gpu = True

    def __init__(self, wire: Wire, resize: Resize) -> None:
        request = wire.read(wire.build("execute_request", NO_CELL))
        self.cell = QueuedRequest(request, time.monotonic(), [])
        self._resize = resize

    def interrupt(self) -> bool:
        """An interrupt ends the wait."""
        return self._resize.cancel("interrupted")

    def fail(self, error: BitfusionError) -> None:
        """`Resize` ends it."""

    def on_wait_over(self) -> None:
        """Likewise."""

    def on_kernel_connected(self) -> None:
        """Likewise."""


def _nothing() -> None:
    """For GPUs in whose place no others are asked for."""
