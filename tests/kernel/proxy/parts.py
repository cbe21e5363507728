"""Parts of a proxy without processes: a loop fired by hand, sockets that record, a scheduler on them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, cast

import zmq

from bitfusion_client.errors import BitfusionError
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.gpu.acquisition import Acquisition
from bitfusion_kernel.offline.early_subshells import EarlySubshells
from bitfusion_kernel.offline.replies import OfflineReplies
from bitfusion_kernel.processes.messages import LaunchedEvent
from bitfusion_kernel.protocol.wire import Message, Wire, read_unchecked
from bitfusion_kernel.proxy.cells.cell_replies import CellReplies
from bitfusion_kernel.proxy.cells.cell_scheduler import CellScheduler
from bitfusion_kernel.proxy.cells.command_cell import CommandCell
from bitfusion_kernel.proxy.cells.request_queue import QueuedRequest, RequestQueue, RequestsInKernel
from bitfusion_kernel.proxy.cells.running_commands import RunningCommands
from bitfusion_kernel.proxy.cells.wait_display import WaitDisplay
from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.proxy.jupyter.client_sockets import ClientChannel
from bitfusion_kernel.proxy.jupyter.publisher import Publisher
from bitfusion_kernel.proxy.lifecycle import KernelLifecycle
from bitfusion_kernel.proxy.requests.control_requests import ControlRequests
from bitfusion_kernel.proxy.requests.shell_requests import ShellRequests
from bitfusion_kernel.proxy.requests.start_up_wait import StartUpWait

WIRE = Wire(b"secret")
LAUNCHED = LaunchedEvent(launcher_pid=10, kernel_pid=11, environment={})

WAIT = "acquire"
STAY = "pool  # of a slow client"
"""The lines of a `FakeCommandCell` that does not end at once."""


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


def message(
    message_type: str, *, header: dict[str, Any] | None = None, client: bytes = b"client", **content: Any
) -> Message:
    """A request as a client sends it."""
    frames = WIRE.build(message_type, content, identities=[client])
    frames[3] = json.dumps({**json.loads(frames[3]), **(header or {})}).encode()
    frames[2] = WIRE.sign(frames[3:])
    return WIRE.read(frames)


def cell(code: str = "1", *, commands: list[str] | None = None, **content: Any) -> QueuedRequest:
    """A cell that has just come."""
    request = message("execute_request", code=code, **content)
    return QueuedRequest(request, time.monotonic(), commands)


class Policy:
    """The settings about cells; `error` is why no cell may ask for a GPU."""

    silent_wait = 5.0
    error: Exception | None = None

    def check_acquire(self) -> None:
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
        self.queue, self.sent, self.commands = RequestQueue(), RequestsInKernel(), RunningCommands()
        self.replies = CellReplies(self.channel, self.publisher, self.queue, self._receive_arrived)
        self.control = RecordingSocket()
        self.control_channel = ClientChannel(cast(Any, self.control), WIRE, self.publisher)
        self.subshells = EarlySubshells(WIRE)
        self.offline = OfflineReplies(
            {"status": "ok", "banner": "hello", "supported_features": ["kernel subshells"]},
            "python",
            [],
            "/p",
            self.subshells,
        )
        self.link = FakeLink()
        self.signals: list[int] = []
        """What the launcher was told to send to the kernel."""
        self.interrupt_by_message = False
        self.interrupts_expected = True
        self.started_at = 0.0
        self.stopped = 0
        self.given_up: BitfusionError | None = None
        """What a cell shows that waits when the kernel is shut down for good."""
        self.started: list[Acquisition] = []
        self.start_error: Exception | None = None
        self.on_start: Callable[[], None] = lambda: None
        self.lifecycle = KernelLifecycle(self._start, lambda: self.policy.check_acquire())
        self.state: dict[str, Any] = {"state": "waiting"}
        """What is published of the kernel."""
        self.display = WaitDisplay(self.loop, self.lifecycle, self.publisher, state=lambda: {**self.state})
        self.start_up = StartUpWait(self.loop, self.lifecycle, lasts=False)
        self.kernel: list[list[bytes]] = []
        """What the kernel has been sent on shell."""
        self.kernel_takes = 1_000_000
        """How many messages the kernel's inbox still takes."""
        self.questions: list[Message] = []
        """What the proxy has asked on shell, and the kernel has not answered."""
        self.arriving: list[QueuedRequest] = []
        """What is received when a cell fails."""
        self.command_cells: list[FakeCommandCell] = []
        self.cells_over = 0
        """How many cells a kernel has finished."""
        self.on_idle: Callable[[], None] = lambda: None
        """Called when the kernel has finished all that it was sent."""
        self.kept = 0
        """How often the wrapper was kept for the next proxy."""
        self.scheduler = CellScheduler(
            self.loop,
            self.lifecycle,
            self.queue,
            self.sent,
            self.commands,
            self.replies,
            self.display,
            silent_wait=lambda: self.policy.silent_wait,
            send_to_kernel=self.send_to_kernel,
            ask_kernel=self.ask_kernel,
            on_cell_over=self._on_cell_over,
            on_idle=lambda: self.on_idle(),
            make_command_cell=self._make_command_cell,
        )

    def _on_cell_over(self) -> None:
        self.cells_over += 1

    def _start(self) -> Acquisition:
        self.on_start()
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

    def ask_kernel(self, subshell: str | None) -> str | None:
        """As `Proxy` asks on one of the kernel's shells."""
        frames = WIRE.build("kernel_info_request", {}, subshell=subshell)
        if not self.send_to_kernel(frames):
            return None
        self.questions.append(WIRE.read(frames))
        return self.questions[-1].id

    def kernel_answers(self) -> None:
        """The kernel has come to the oldest question."""
        question = self.questions.pop(0)
        frames = WIRE.build("kernel_info_reply", {"status": "ok"}, parent=question.header)
        self.scheduler.on_answer(read_unchecked(frames))
        self.scheduler.advance()

    def _make_command_cell(self, request: QueuedRequest, scheduler: Any) -> CommandCell:
        self.command_cells.append(FakeCommandCell(request, scheduler))
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
            self.sent,
            self.commands,
            self.display,
            self.scheduler,
            cast(Any, self.link),
            stop_wrapper=self._stop_wrapper,
            keep_for_restart=self._keep_for_restart,
            signal_kernel=self.signals.append,
            interrupt_by_message=self.interrupt_by_message,
            interrupts_expected=lambda: self.interrupts_expected,
            started_at=lambda: self.started_at,
            why_given_up=lambda: self.given_up,
        )

    def _stop_wrapper(self) -> None:
        self.stopped += 1

    def _keep_for_restart(self) -> None:
        self.kept += 1

    def make_shell(self, on_shutdown: Callable[[Message], None] = lambda _: None) -> ShellRequests:
        """Shell on these parts."""
        return ShellRequests(
            self.channel,
            self.loop,
            self.lifecycle,
            self.offline,
            self.queue,
            self.sent,
            self.scheduler,
            self.start_up,
            kernel_inbox_full=lambda: self.link.inbox_full,
            on_shutdown=on_shutdown,
        )

    def submit(self, *requests: QueuedRequest) -> None:
        """Requests arrive one after the other."""
        for request in requests:
            self.scheduler.append(request)
            self.scheduler.advance()

    def let_fail(self, request: QueuedRequest) -> None:
        """A cell that fails has been given the time in which others arrive."""
        self.loop.fire(f"fail {request.message.id}")

    def launch(self) -> None:
        """The GPU is granted."""
        self.lifecycle.request()
        self.lifecycle.launched(LAUNCHED, time.monotonic())

    def connect(self, control: ControlRequests | None = None) -> None:
        """The kernel answers."""
        self.launch()
        self.lifecycle.kernel_connected()
        if control is not None:
            control.on_kernel_connected()
        self.scheduler.on_kernel_connected()

    def in_kernel(self) -> list[str]:
        """Ids of the clients' requests that the kernel has been sent."""
        sent = [read_unchecked(frames) for frames in self.kernel]
        return [message.id for message in sent if message.identities]

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
        self.announced: str | None = None
        self.last_shell: list[list[bytes]] = []
        self.last_control: list[list[bytes]] = []

    def send_control(self, frames: list[bytes]) -> None:
        """Keep one message."""
        self.control.append(frames)

    def ask(self, message_type: str) -> str:
        """Keep one request of the proxy's own; interrupts are counted."""
        if message_type == "interrupt_request":
            self.interrupts += 1
            return ""
        self.control.append(WIRE.build(message_type, {}))
        return WIRE.read(self.control[-1]).id

    def open(self, connection: Any, on_joined: Callable[[], None]) -> None:
        """Keep who is to be called."""
        self.opened.append((connection, on_joined))

    def start_relaying(self, announced: str | None = None) -> None:
        """Keep it."""
        self.relaying = True
        self.announced = announced

    def hear_output(self, on_output: Callable[[], None] | None) -> None:
        """No output comes here."""

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

    @property
    def waits_for_gpu(self) -> bool:
        """Whether it does nothing else."""
        return self.cell.commands == [WAIT] and "connected" not in self.told

    def proceed(self) -> None:
        """A cell of the line `WAIT` waits for the GPU, one of `STAY` for `finish`; others are done."""
        self.proceeded += 1
        if self.cell.commands == [WAIT]:
            self.scheduler.wait_for_gpu(self.cell)
        elif self.cell.commands != [STAY]:
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
        return self.cell.commands == [STAY]

    def on_wait_over(self) -> None:
        """Keep it."""
        self.told.append("wait over")

    def on_kernel_connected(self) -> None:
        """Keep it."""
        self.told.append("connected")
