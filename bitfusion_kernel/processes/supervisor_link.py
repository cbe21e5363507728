"""The proxy's side of the supervisor: forks or joins it, sends it commands, receives its events."""

from __future__ import annotations

import gc
import itertools
import os
import select
import signal
import socket
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes import private_folder, reaper
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    Command,
    DropCommand,
    Event,
    JoinedEvent,
    KernelCommand,
    NextKernelCommand,
    ParkCommand,
    SignalCommand,
    StartCommand,
    StopCommand,
    StoppedEvent,
    TakeCommand,
    WatchCommand,
    WorkedCommand,
    WrapperExitedEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class SupervisorLink(MessageConnection):
    """A supervisor that runs. Poll `fileno()` for reading, then call `events`.

    A command may be larger than the socket's buffer, as an environment has no bound, and the supervisor may
    stand still. What it does not take at once waits here: while `wants_write`, poll for writing, too, and
    call `flush`. `closed` says that it was killed, or that the proxy has left by `close`: then it ends
    whatever runs, and itself, unless it has been told to keep that or the next proxy comes soon.
    """

    def __init__(
        self,
        connection: socket.socket,
        pid: int,
        folder: str,
        kept: JoinedEvent | None = None,
    ) -> None:
        super().__init__(connection)
        self.pid = pid
        """The same over all restarts; 0 of an older one that was joined, which has not told it."""
        self._is_child = kept is None
        self.kept = kept or JoinedEvent()
        """What it has kept for this proxy; its `number` is 0 if that is nothing."""
        self.folder = folder
        """The private folder that proxy and supervisor share; whoever ends last removes it."""
        self.stays = False
        """Whether it outlives this proxy, as it keeps a lease or a place in the queue for the next one."""
        self.on_backlog: Callable[[], object] = lambda: None
        """Called when a command could not be sent whole."""

    def start(self, command: StartCommand) -> None:
        """Start a wrapper, beside the one that runs or when that has ended."""
        self._send(command)

    def take(self) -> None:
        """Have the wrapper beside take the place of the one that has ended."""
        self._send(TakeCommand())

    def drop(self) -> None:
        """End the wrapper beside."""
        self._send(DropCommand())

    def run_kernel(self, command: KernelCommand) -> None:
        """Run another kernel on the lease that it keeps."""
        self._send(command)

    def park(self, seconds: float, kernel: KernelCommand | None = None) -> None:
        """Keep the lease, or the place in the queue, for the next proxy; no kernel is needed till then.

        `kernel` is the one that it will want: that one is started before it comes.
        """
        self._send(ParkCommand(seconds))
        if kernel is not None:
            self._send(NextKernelCommand(kernel.number, kernel.argv, kernel.environment, kernel.folder))

    def worked(self) -> None:
        """The kernel has finished a cell."""
        self._send(WorkedCommand())

    def watch(self, seconds: float) -> None:
        """Have it told by WorkingEvent that the kernel's processes work, once in so many seconds; 0: not."""
        self._send(WatchCommand(seconds))

    def signal(self, number: int) -> None:
        """Send the kernel and its children a signal, as Jupyter sends one to a plain kernel."""
        self._send(SignalCommand(number))

    def stop(self, *, spares_beside: bool = False) -> None:
        """End the kernel and the wrapper, whatever they do; `StoppedEvent` follows."""
        self._send(StopCommand(spares_beside))

    def _send(self, command: Command) -> None:
        self.send(command)
        if self.wants_write:
            self.on_backlog()

    def events(self) -> list[Event]:
        """What has happened since the last call; look at `closed` afterwards."""
        return [message for message in self.receive() if isinstance(message, Event)]

    def await_release(self, seconds: float) -> None:
        """Wait after `stop` until the wrapper has given its GPU back, at most so long.

        A supervisor that was killed leaves the private folder: it is removed here.
        """
        deadline = time.monotonic() + seconds
        released = False
        while not (released or self.closed) and (left := deadline - time.monotonic()) > 0:
            select.select([self], [self] if self.wants_write else [], [], left)
            self.flush()
            released = any(isinstance(event, (WrapperExitedEvent, StoppedEvent)) for event in self.events())
        if self.closed:
            private_folder.remove(self.folder)

    def await_end(self, seconds: float) -> None:
        """Wait after `close` for the end of a supervisor that does not stay, and reap it. Called last.

        A supervisor that ends later is an orphan, which stays a zombie where Jupyter is process 1.
        """
        if self._is_child and not self.stays:
            reaper.reap([self.pid], seconds)


def start_supervisor(folder: str, restarter: int, *, found_again: bool = True) -> SupervisorLink:
    """Fork the supervisor. Called once by the proxy, before it starts any thread or imports zmq.

    `restarter` is the process that would start the next proxy, see JoinCommand. `found_again` tells whether
    that one will find this folder: else nothing is kept for it. What only the supervisor needs it imports
    itself, while the proxy goes on.
    """
    proxy_end, supervisor_end = socket.socketpair()
    pipes = [(os.pipe(), os.pipe()) for _ in range(2)]
    pid = os.fork()
    if pid == 0:
        status = 1
        gc.enable()  # the proxy forks while its own is off
        try:
            _detach_from_proxy(proxy_end)
            from bitfusion_kernel.processes.meeting_point import MeetingPoint
            from bitfusion_kernel.processes.supervisor import Supervisor

            meeting_place = MeetingPoint(folder if found_again else "")
            proxy = MessageConnection(supervisor_end)
            Supervisor(proxy, pipes, folder, meeting_place, restarter).run()
            status = 0
        finally:
            os._exit(status)
    supervisor_end.close()
    for _, write_end in itertools.chain(*pipes):
        os.close(write_end)  # the read ends stay open: see WrapperOutput
    return SupervisorLink(proxy_end, pid, folder)


def join_supervisor(folder: str, restarter: int) -> SupervisorLink:
    """Join the one that the proxy before has left in this folder. Raises what `meeting_point.join` does."""
    from bitfusion_kernel.processes import meeting_point

    connection, kept = meeting_point.join(folder, restarter)
    return SupervisorLink(connection, kept.supervisor, folder, kept)


def _detach_from_proxy(proxy_end: socket.socket) -> None:
    """In the forked child: an own session, no terminal, none of the proxy's descriptors or signals."""
    os.setsid()
    proxy_end.close()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)  # a client's stdout must reach its end when the client ends
    os.close(null)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
