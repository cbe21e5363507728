"""The supervisor process: parent of the wrapper, outlives the proxy; owns output, exit status and end.

Forked by the proxy before the proxy imports zmq, so it shares those pages and imports nothing anew; it
leads a session of its own. The wrapper needs a living parent that reads its pipes: a Go program whose
reader has died ends by SIGPIPE before it gives its GPUs back. The proxy may die at any moment; then the
supervisor ends the kernel, the wrapper and itself, in that order.

It talks to the proxy in the messages of `messages`; `wrapper` decides who is ended when.
"""

from __future__ import annotations

import os
import select
from functools import partial

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_kernel.processes import private_folder, reaper
from bitfusion_kernel.processes.held_file import HeldFile
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    Command,
    Event,
    LaunchedEvent,
    OutputEvent,
    StartCommand,
    StartedEvent,
    StopCommand,
    StoppedEvent,
    WrapperExitedEvent,
)
from bitfusion_kernel.processes.process_watch import POLL_WITHOUT_PIDFD
from bitfusion_kernel.processes.wrapper import Wrapper
from bitfusion_kernel.processes.wrapper_output import WrapperOutput

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Pipe = tuple[int, int]  # read end, write end

CANNOT_EXECUTE = 127
"""The status told for a wrapper that could not be executed, as a shell tells it."""

LONGEST_POLL = 1.0
"""Seconds after which a running wrapper is looked at in any case."""


class Supervisor:
    """The supervisor's loop: the proxy's commands, the wrapper's output, the launcher's events, its end."""

    def __init__(self, proxy: MessageConnection, stdout: Pipe, stderr: Pipe, folder: str) -> None:
        self._proxy = proxy
        self._output = WrapperOutput(stdout[0], stderr[0])
        self._write_ends = stdout[1], stderr[1]
        self._folder = folder
        self._wrapper: Wrapper | None = None
        self._held_file: HeldFile | None = None
        self._handlers: dict[type[Command], Callable[[Any], None]] = {
            StartCommand: self._start,
            StopCommand: self._stop,
        }

    def run(self) -> None:
        """Serve the proxy until it is gone and nothing is left to end."""
        while self._wrapper is not None or not self._proxy.closed:
            self._serve_once()
            if self._wrapper is not None:
                self._look_after(self._wrapper)
            reaper.reap_ended(but=None if self._wrapper is None else self._wrapper.process.pid)
        private_folder.remove(self._folder)

    def _serve_once(self) -> None:
        """Wait until something can be read (or a signal is due) and read it."""
        poll = select.poll()
        readers: dict[int, Callable[[], None]] = {}

        def on_readable(fd: int, reader: Callable[[], None]) -> None:
            poll.register(fd, select.POLLIN)
            readers[fd] = reader

        if not self._proxy.closed:
            on_readable(self._proxy.fileno(), self._read_proxy)
            if self._proxy.wants_write:
                poll.modify(self._proxy, select.POLLIN | select.POLLOUT)
        for fd in self._output.streams:
            on_readable(fd, partial(self._pass_on_output, fd))
        timeout = None
        wrapper = self._wrapper
        if wrapper is not None:
            timeout = self._longest_wait(wrapper)
            if wrapper.process.fd is not None:
                on_readable(wrapper.process.fd, lambda: None)  # `_look_after` reaps it
            source = wrapper.launcher_source
            if source is not None:
                on_readable(source.fileno(), partial(self._pass_on_events, wrapper))
        for fd, _ in poll.poll(timeout):
            readers[fd]()

    @staticmethod
    def _longest_wait(wrapper: Wrapper) -> float:
        """Milliseconds until the wrapper must be looked at."""
        seconds = LONGEST_POLL if wrapper.process.fd is not None else POLL_WITHOUT_PIDFD
        due = wrapper.seconds_to_next_signal
        return seconds * 1000 if due is None else min(seconds, due) * 1000 + 1

    # -- the proxy's commands ----------------------------------------------------------------------

    def _read_proxy(self) -> None:
        self._proxy.flush()
        for command in self._proxy.receive():
            if isinstance(command, Command):
                self._handlers[type(command)](command)

    def _start(self, command: StartCommand) -> None:
        self._folder = os.path.dirname(command.socket_path)  # another one if it had to be made again
        try:
            self._held_file = HeldFile(command.held_file) if command.held_file else None
        except OSError:
            self._held_file = None  # the wrapper misses it, and tells
        try:
            self._wrapper = Wrapper.start(command, *self._write_ends)
        except OSError as error:
            self._release_held_file()
            what = "make the socket" if error.filename == command.socket_path else "start"
            text = f"Error: cannot {what} {error.filename or command.argv[0]}: {error.strerror}"
            self._proxy.send(OutputEvent("stderr", text))
            self._proxy.send(WrapperExitedEvent(command.number, CANNOT_EXECUTE))
        else:
            self._proxy.send(StartedEvent(self._wrapper.process.pid))

    def _release_held_file(self) -> None:
        if self._held_file is not None:
            self._held_file.release()
            self._held_file = None

    def _stop(self, _: StopCommand) -> None:
        if self._wrapper is not None:
            self._wrapper.stop()
        else:
            self._proxy.send(StoppedEvent())

    # -- the wrapper -------------------------------------------------------------------------------

    def _pass_on_output(self, fd: int) -> None:
        for line in self._output.read(fd):
            self._proxy.send(line, droppable=True)

    def _pass_on_events(self, wrapper: Wrapper) -> None:
        for event in wrapper.on_launcher_ready():
            self._proxy.send(event)
            if isinstance(event, LaunchedEvent):
                reaper.adopt_orphans()

    def _look_after(self, wrapper: Wrapper) -> None:
        """Tell the wrapper's end, or bring it nearer."""
        status = wrapper.reap()
        if status is None:
            if self._proxy.closed:
                wrapper.stop()
            wrapper.on_time()
            return
        events: list[Event] = [*wrapper.finish(), *self._output.drain()]
        self._release_held_file()
        events.append(WrapperExitedEvent(wrapper.number, status))
        if wrapper.stopping:
            events.append(StoppedEvent())
        for event in events:
            self._proxy.send(event)
        reaper.reap(wrapper.descendants, reaper.ORPHANS_PATIENCE)
        self._wrapper = None
