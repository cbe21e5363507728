"""The proxy's side of the supervisor: forks it, sends it commands, receives its events."""

from __future__ import annotations

import gc
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
    Event,
    StartCommand,
    StopCommand,
    StoppedEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.processes.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable


class SupervisorLink(MessageConnection):
    """A supervisor that runs. Poll `fileno()` for reading, then call `events`.

    A command may be larger than the socket's buffer, as an environment has no bound, and the supervisor may
    stand still. What it does not take at once waits here: while `wants_write`, poll for writing, too, and
    call `flush`. `closed` says that it was killed, or that the proxy has left by `close`: then it ends
    whatever runs, and itself.
    """

    def __init__(self, connection: socket.socket, pid: int, folder: str) -> None:
        super().__init__(connection)
        self.pid = pid
        self.folder = folder
        """The private folder that proxy and supervisor share; whoever ends last removes it."""
        self.on_backlog: Callable[[], object] = lambda: None
        """Called when a command could not be sent whole."""

    def start(self, command: StartCommand) -> None:
        """Start a wrapper; the proxy does so only when the one before has ended."""
        self._send(command)

    def stop(self) -> None:
        """End the kernel and the wrapper, whatever they do; `StoppedEvent` follows."""
        self._send(StopCommand())

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
        """Wait for the end of the supervisor after `close`, and reap it. Called last by the proxy.

        A supervisor that ends later is an orphan, which stays a zombie where Jupyter is process 1.
        """
        reaper.reap([self.pid], seconds)


def start_supervisor(folder: str) -> SupervisorLink:
    """Fork the supervisor. Called once by the proxy, before it starts any thread or imports zmq."""
    proxy_end, supervisor_end = socket.socketpair()
    stdout, stderr = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        gc.enable()  # the proxy forks while its own is off
        try:
            _detach_from_proxy(proxy_end)
            Supervisor(MessageConnection(supervisor_end), stdout, stderr, folder).run()
            status = 0
        finally:
            os._exit(status)
    supervisor_end.close()
    for _, write_end in (stdout, stderr):
        os.close(write_end)  # the read ends stay open: see WrapperOutput
    return SupervisorLink(proxy_end, pid, folder)


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
