"""Parts of a proxy without processes: a loop fired by hand, sockets that record, a scheduler on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import zmq

from bitfusion_client.request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.processes.messages import LaunchedEvent
from bitfusion_kernel.protocol.wire import Message, Wire, read_unchecked
from bitfusion_kernel.proxy.cell_replies import CellReplies
from bitfusion_kernel.proxy.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.client_sockets import ClientChannel
from bitfusion_kernel.proxy.command_cell import CommandCell
from bitfusion_kernel.proxy.control_requests import ControlRequests
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
from bitfusion_kernel.proxy.publisher import Publisher
from bitfusion_kernel.proxy.request_queue import QueuedRequest
from bitfusion_kernel.proxy.shell_requests import ShellRequests
from bitfusion_kernel.proxy.wait_display import WaitDisplay

WIRE = Wire(b"secret")
LAUNCHED = LaunchedEvent(launcher_pid=10, kernel_pid=11, environment={})


class ManualLoop(EventLoop):
    """Nothing is polled; handlers and timers are called by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.handlers: dict[Any, Callable[[], object]] = {}
        self.timers: dict[str, tuple[float, Callable[[], None]]] = {}

    def on(self, source: Any, handler: Callable[[], object], *, writable: bool = False) -> None:
        """Keep the handler."""
        self.handlers[source] = handler

    def off(self, source: Any) -> None:
        """Forget the handler."""
        self.handlers.pop(source, None)

    def watches(self, source: Any) -> bool:
        """Whether there is a handler."""
        return source in self.handlers

    def set_timer(self, name: str, when: float, action: Callable[[], None]) -> None:
        """Keep the timer."""
        self.timers[name] = (when, action)

    def cancel_timer(self, name: str) -> None:
        """Forget the timer."""
        self.timers.pop(name, None)

    def on_signals(self, numbers: tuple[int, ...], action: Callable[[int], None]) -> None:
        """No signals here."""

    def fire(self, name: str) -> None:
        """Call a timer's action, whatever its time."""
        self.timers.pop(name)[1]()


class RecordingSocket:
    """Keeps what is sent; gives out what the test puts into `incoming`."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.incoming: list[list[bytes]] = []

    def send_multipart(self, msg_parts: list[bytes], flags: int = 0) -> None:
        """Keep one message."""
        self.sent.append(msg_parts)

    def recv_multipart(self, flags: int = 0) -> list[bytes]:
        """Give out one message."""
        if not self.incoming:
            raise zmq.Again
        return self.incoming.pop(0)

    def recv(self) -> bytes:
        """Give out the first frame of one message."""
        return self.incoming.pop(0)[0]

    def close(self, linger: int | None = None) -> None:
        """Nothing to close."""

    def messages(self) -> list[Message]:
        """What has been sent."""
        return [WIRE.read(frames) for frames in self.sent]


def message(message_type: str, *, header: dict[str, Any] | None = None, **content: Any) -> Message:
    """A request as a client sends it."""
    made = WIRE.read(WIRE.build(message_type, content, identities=[b"client"]))
    made.header.update(header or {})
    return made


def cell(code: str = "1", *, commands: list[str] | None = None, **content: Any) -> QueuedRequest:
    """A cell that has just come."""
    request = message("execute_request", code=code, **content)
    return QueuedRequest(request, time.monotonic(), commands)


class Policy:
    """The settings about cells; `error` is why no cell may ask for a GPU."""

    silent_wait = 5.0
    error: Exception | None = None

    def check_cells_acquire(self) -> None:
        """As `KernelStarter`."""
        if self.error is not None:
            raise self.error


class Parts:
    """Lifecycle, scheduler, display and what they need; no sockets, no processes."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.policy = Policy()
        self.shell, self.iopub = RecordingSocket(), RecordingSocket()
        self.publisher = Publisher(WIRE, self.iopub)
        self.channel = ClientChannel(cast(Any, self.shell), WIRE, self.publisher)
        self.replies = CellReplies(self.channel, self.publisher)
        self.control = RecordingSocket()
        self.control_channel = ClientChannel(cast(Any, self.control), WIRE, self.publisher)
        self.offline = OfflineReplies(
            {"status": "ok", "banner": "hello"},
            lambda _: {"history": []},
            lambda _: {"status": "complete"},
            "/p",
        )
        self.link = FakeLink()
        self.interrupts_expected = True
        self.stopped = 0
        self.started: list[Acquisition] = []
        self.start_error: Exception | None = None
        self.lifecycle = KernelLifecycle(self._start)
        self.display = WaitDisplay(self.loop, self.lifecycle, self.publisher, self.replies.announce)
        self.kernel: list[list[bytes]] = []
        """What the kernel has been sent on shell."""
        self.kernel_takes = 1_000_000
        """How many messages the kernel's inbox still takes."""
        self.arriving: list[QueuedRequest] = []
        """What is received when a cell fails."""
        self.command_cells: list[FakeCommandCell] = []
        self.scheduler = CellScheduler(
            self.loop,
            self.lifecycle,
            self.replies,
            self.display,
            self.policy,
            send_to_kernel=self.send_to_kernel,
            make_command_cell=self._make_command_cell,
            receive_arrived=self._receive_arrived,
        )

    def _start(self) -> Acquisition:
        if self.start_error is not None:
            raise self.start_error
        self.started.append(Acquisition(len(self.started) + 1, GpuRequest(), time.monotonic()))
        return self.started[-1]

    def send_to_kernel(self, frames: list[bytes]) -> bool:
        """As `KernelLink.send_shell`."""
        if not self.kernel_takes:
            self.link.inbox_full = True
            return False
        self.kernel_takes -= 1
        self.kernel.append(frames)
        return True

    def _make_command_cell(self, request: QueuedRequest) -> CommandCell:
        self.command_cells.append(FakeCommandCell(request, self.scheduler))
        return cast(CommandCell, self.command_cells[-1])

    def _receive_arrived(self) -> None:
        while self.arriving:
            self.scheduler.append(self.arriving.pop(0))

    def make_control(self) -> ControlRequests:
        """Control on these parts; `stopped` counts how often the wrapper was told to stop."""
        return ControlRequests(
            self.control_channel,
            self.loop,
            self.lifecycle,
            self.offline,
            self.scheduler,
            cast(Any, self.link),
            stop_wrapper=self._stop_wrapper,
            interrupts_expected=lambda: self.interrupts_expected,
        )

    def _stop_wrapper(self) -> None:
        self.stopped += 1

    def make_shell(self, on_shutdown: Callable[[Message], None] = lambda _: None) -> ShellRequests:
        """Shell on these parts."""
        return ShellRequests(
            self.channel,
            self.loop,
            self.lifecycle,
            self.offline,
            self.scheduler,
            kernel_inbox_full=lambda: self.link.inbox_full,
            on_shutdown=on_shutdown,
        )

    def submit(self, *requests: QueuedRequest) -> None:
        """Requests arrive one after the other."""
        for request in requests:
            self.scheduler.append(request)
            self.scheduler.advance()

    def launch(self) -> None:
        """The GPU is granted."""
        self.lifecycle.request()
        self.lifecycle.launched(LAUNCHED, time.monotonic())

    def connect(self) -> None:
        """The kernel answers."""
        self.launch()
        self.lifecycle.kernel_connected()
        self.scheduler.on_kernel_connected()

    def in_kernel(self) -> list[str]:
        """Ids of the requests that the kernel has been sent."""
        return [read_unchecked(frames).id for frames in self.kernel]

    def kernel_replies(self, request: QueuedRequest, **content: Any) -> None:
        """The kernel has run a cell."""
        frames = WIRE.build("execute_reply", {"status": "ok", **content}, parent=request.message.header)
        self.scheduler.on_execute_reply(read_unchecked(frames))
        self.scheduler.advance()

    def status_of(self, request: QueuedRequest) -> str | None:
        """The status that the proxy has replied to a cell; None if it has not."""
        found = [
            str(reply.content["status"])
            for reply in self.shell.messages()
            if reply.parent_header["msg_id"] == request.message.id
        ]
        assert len(found) <= 1, "a cell was replied to twice"
        return found[0] if found else None

    def published(self, request: QueuedRequest) -> list[str]:
        """Types of what was published for a request; the state instead of `status`."""
        return [
            str(m.content.get("execution_state", m.type))
            for m in self.iopub.messages()
            if m.parent_header.get("msg_id") == request.message.id
        ]


class FakeLink:
    """Keeps what the kernel is sent."""

    def __init__(self) -> None:
        self.inbox_full = False
        self.control: list[list[bytes]] = []
        self.stdin: list[list[bytes]] = []
        self.interrupts = 0
        self.opened: list[Any] = []
        self.closed = 0
        self.relaying = False
        self.last_shell: list[list[bytes]] = []
        self.last_control: list[list[bytes]] = []

    def send_control(self, frames: list[bytes]) -> None:
        """Keep one message."""
        self.control.append(frames)

    def interrupt(self) -> None:
        """Count it."""
        self.interrupts += 1

    def open(self, connection: Any, on_joined: Callable[[], None]) -> None:
        """Keep who is to be called."""
        self.opened.append((connection, on_joined))

    def start_relaying(self) -> None:
        """Keep it."""
        self.relaying = True

    def close(self) -> None:
        """Count it."""
        self.closed += 1

    def shell_replies(self) -> list[list[bytes]]:
        """What a kernel has left on shell."""
        return self.last_shell

    def control_replies(self) -> list[list[bytes]]:
        """The same on control."""
        return self.last_control


class FakeCommandCell:
    """A `%bitfusion` cell that ends when the test says so."""

    def __init__(self, request: QueuedRequest, scheduler: CellScheduler) -> None:
        self.cell = request
        self.scheduler = scheduler
        self.proceeded = 0
        self.told: list[str] = []

    def proceed(self) -> None:
        """Lines named `wait` wait for the GPU, `stay` for `finish`; others are done."""
        self.proceeded += 1
        if self.cell.commands == ["wait"]:
            self.scheduler.wait_for_gpu(self.cell)
        elif self.cell.commands != ["stay"]:
            self.scheduler.finish_commands(self.cell)

    def finish(self) -> None:
        """All lines have run."""
        self.scheduler.finish_commands(self.cell)
        self.scheduler.advance()

    def fail(self, error: Any) -> None:
        """As `CommandCell.fail`."""
        self.scheduler.fail_commands(self.cell, error)

    def interrupt(self) -> bool:
        """Whether it was for a client that runs here."""
        self.told.append("interrupt")
        return self.cell.commands == ["stay"]

    def on_wait_over(self) -> None:
        """Keep it."""
        self.told.append("wait over")

    def on_kernel_connected(self) -> None:
        """Keep it."""
        self.told.append("connected")
