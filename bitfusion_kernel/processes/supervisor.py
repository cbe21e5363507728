"""The supervisor process: parent of the wrapper, outlives the proxy; owns output, exit status and end.

Forked by the proxy before the proxy imports zmq, so it is small and shares those pages; it leads a session
of its own. The wrapper needs a living parent that reads its pipes: a Go program whose reader has died ends by
SIGPIPE before it gives its GPUs back. The proxy may end at any moment, as in a restart; then the supervisor
keeps the lease, or the place in the queue, for the next one with the same key. If none comes in time, it ends
the kernel, the wrapper and itself, in that order. For a change of size a second wrapper asks beside the first
(`beside`); no proxy finds that after a restart.

It talks to the proxy in the messages of `messages`; `wrapper` decides who is ended when.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from functools import partial

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state import states
from bitfusion_kernel.processes import private_folder, reaper
from bitfusion_kernel.processes.beside import Beside
from bitfusion_kernel.processes.deaths import Deaths
from bitfusion_kernel.processes.meeting_point import MeetingPoint
from bitfusion_kernel.processes.message_connection import MessageConnection
from bitfusion_kernel.processes.messages import (
    VERSION,
    Command,
    DropCommand,
    Event,
    JoinCommand,
    JoinedEvent,
    KernelCommand,
    KernelExitedEvent,
    LaunchedEvent,
    NextKernelCommand,
    OutputEvent,
    ParkCommand,
    RefusedEvent,
    SignalCommand,
    StartCommand,
    StartedEvent,
    StopCommand,
    StoppedEvent,
    TakeCommand,
    WatchCommand,
    WorkedCommand,
    WrapperExitedEvent,
)
from bitfusion_kernel.processes.process_watch import POLL_WITHOUT_PIDFD, ProcessWatch
from bitfusion_kernel.processes.wrapper import Wrapper
from bitfusion_kernel.processes.wrapper_output import Pipe, WrapperOutput

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CANNOT_EXECUTE = 127
"""The status told for a wrapper that could not be executed, as a shell tells it."""

LONGEST_POLL = 1.0
"""Seconds after which a running wrapper is looked at in any case."""

KERNEL_END_PATIENCE = 2.0
"""Seconds a kernel has to end before a restart; jupyter_client kills the proxy after 2.5 s."""

KEPT_FOR_RESTARTER = 4.0
"""Seconds that all is kept when the proxy is gone without a word: Jupyter looks for dead ones every 3 s."""

KEPT_WITHOUT_RESTARTER = 1.5
"""The same, also in a restart, once Jupyter's process is gone; somebody else may go on with it at once."""

MOST_LINES = 500
"""Of what the wrapper has said, for the next proxy's log."""


class Supervisor:
    """The supervisor's loop: the proxy's commands, the wrapper's output, the launcher's events, its end."""

    def __init__(
        self,
        proxy: MessageConnection,
        pipes: list[tuple[Pipe, Pipe]],
        folder: str,
        meeting_point: MeetingPoint,
        restarter: int,
    ) -> None:
        self._proxy = proxy
        self._restarter = ProcessWatch(restarter)
        self._outputs = [WrapperOutput(*pair) for pair in pipes]  # of the wrapper, and of the one beside it
        self._folder = folder
        self._meeting_point = meeting_point
        self._wrapper: Wrapper | None = None
        self._beside: Beside | None = None
        self._largest_number = 0
        self._said: deque[OutputEvent] = deque(maxlen=MOST_LINES)
        # of a kernel whose proxy is still to come
        self._unheard: deque[OutputEvent] = deque(maxlen=MOST_LINES)
        self._deaths = Deaths()
        self._kept_until: float | None = None
        self._watched = WatchCommand()
        self._handlers: dict[type[Command], Callable[[Any], None]] = {
            StartCommand: self._start,
            TakeCommand: lambda _: self._take(),
            DropCommand: lambda _: self._drop(),
            KernelCommand: self._run_kernel,
            NextKernelCommand: self._prepare,
            SignalCommand: self._signal,
            WorkedCommand: lambda _: self._deaths.forget(),
            WatchCommand: self._watch,
            ParkCommand: self._park,
            StopCommand: self._stop,
        }

    def run(self) -> None:
        """Serve the proxy, and the next, until none is there and nothing is left to keep or to end."""
        while self._wrappers or not self._proxy.closed:
            self._serve_once()
            if self._wrapper is not None:
                self._look_after(self._wrapper)
            if self._beside is not None:
                self._look_after_beside(self._beside)
            reaper.reap_ended(but=[wrapper.process.pid for wrapper in self._wrappers])
        self._meeting_point.close()
        private_folder.remove(self._folder)

    @property
    def _wrappers(self) -> list[Wrapper]:
        beside = () if self._beside is None else (self._beside.wrapper,)
        return [wrapper for wrapper in (self._wrapper, *beside) if wrapper is not None]

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
        if (door := self._meeting_point.source) is not None:
            on_readable(door.fileno(), self._meet)
        for output in self._outputs:
            for fd in output.streams:
                on_readable(fd, partial(self._pass_on_output, output, fd))
        for wrapper in self._wrappers:
            if wrapper.process.fd is not None:
                on_readable(wrapper.process.fd, lambda: None)  # `_look_after` reaps it
            source = wrapper.launcher_source
            if source is not None:
                on_readable(source.fileno(), partial(self._pass_on_events, wrapper))
        for fd, _ in poll.poll(self._longest_wait()):
            readers[fd]()

    def _longest_wait(self) -> float | None:
        """Milliseconds until the wrappers must be looked at; None if there is none."""
        limits = []
        for wrapper in self._wrappers:
            limits.append(LONGEST_POLL if wrapper.process.fd is not None else POLL_WITHOUT_PIDFD)
            if (due := wrapper.seconds_to_next_signal) is not None:
                limits.append(due)
        if self._kept_until is not None:
            limits.append(max(0.0, self._kept_until - time.monotonic()))
        if self._beside is not None:
            limits.append(self._beside.seconds_left)
        return min(limits) * 1000 + 1 if limits else None

    # -- one proxy after another -------------------------------------------------------------------

    def _read_proxy(self) -> None:
        self._proxy.flush()
        for command in self._proxy.receive():
            if isinstance(command, Command):
                handler = self._handlers.get(type(command))
                if handler is not None:
                    handler(command)
        if self._proxy.closed:
            self._miss_proxy()

    def _miss_proxy(self) -> None:
        """It is gone. A restart has been told of; else it has died, or its kernel has, and it with that."""
        self._drop()
        wrapper, now = self._wrapper, time.monotonic()
        if wrapper is None or wrapper.stopping:
            return
        died = self._kept_until is None and wrapper.kernel_runs
        if (died and self._deaths.note(now)) or not self._meeting_point.open:
            self._give_back(wrapper)  # to whoever waits; the next proxy could only wait for it, too
            return
        if self._kept_until is None:
            wrapper.park(0)
            self._kept_until = now + KEPT_FOR_RESTARTER
        states.change(self._folder, states.PARKED, time.time())

    def _give_back(self, wrapper: Wrapper) -> None:
        """No proxy is there any more that could tell."""
        wrapper.stop()
        states.change(self._folder, states.RELEASING, time.time())

    def _meet(self) -> None:
        """Another proxy wants to join: it is the next one, if this one is gone."""
        heard = self._meeting_point.hear()
        if heard is None:
            return
        comer, command = heard
        if not self._proxy.closed:
            self._read_proxy()
        if command.version == VERSION and self._proxy.closed:
            self._join(comer, command)
            return
        comer.send(RefusedEvent(VERSION))
        comer.close()
        if self._proxy.closed and self._wrapper is not None:  # of an older version, or a newer one
            self._give_back(self._wrapper)

    def _join(self, proxy: MessageConnection, command: JoinCommand) -> None:
        self._proxy.close()
        self._proxy = proxy
        self._restarter.close()
        self._restarter = ProcessWatch(command.restarter)
        wrapper = self._wrapper
        self._kept_until = None
        self._watch(WatchCommand())  # each asks for itself
        if wrapper is None:
            proxy.send(JoinedEvent(supervisor=os.getpid()))
            return
        if not wrapper.next_runs:
            wrapper.park(0)  # until the proxy says what kernel it wants
        proxy.send(
            JoinedEvent(
                wrapper.started.number,
                wrapper.process.pid,
                wrapper.started.note,
                wrapper.started_at,
                wrapper.granted_at,
                wrapper.stopping,
                self._largest_number,
                tuple(f"{each.stream[3]}{each.text}" for each in self._said),
                os.getpid(),
            )
        )

    # -- the proxy's commands ----------------------------------------------------------------------

    def _start(self, command: StartCommand) -> None:
        self._folder = os.path.dirname(command.socket_path)  # another one if it had to be made again
        self._meeting_point.listen_in(self._folder)
        self._largest_number = command.number
        if command.beside and self._beside is not None:
            self._tell_of_no_start(command, "Error: the request before this one is just ending")
            return
        try:
            wrapper = Wrapper.start(command, self._outputs[bool(command.beside)])
        except OSError as error:
            what = "make the socket" if error.filename == command.socket_path else "start"
            name = error.filename or command.argv[0]
            self._tell_of_no_start(command, f"Error: cannot {what} {name}: {error.strerror}")
            return
        if command.beside:
            self._beside = Beside(wrapper, deque(maxlen=MOST_LINES))
            self._proxy.send(StartedEvent(wrapper.process.pid, command.number))
            return
        self._wrapper = wrapper
        self._said.clear()
        self._unheard.clear()
        self._proxy.send(StartedEvent(wrapper.process.pid))
        reaper.adopt_orphans()

    def _tell_of_no_start(self, command: StartCommand, why: str) -> None:
        self._proxy.send(OutputEvent("stderr", why, command.number if command.beside else 0))
        self._proxy.send(WrapperExitedEvent(command.number, CANNOT_EXECUTE))

    def _run_kernel(self, command: KernelCommand) -> None:
        self._largest_number = command.number
        if self._wrapper is not None and not self._wrapper.stopping:
            self._tell(self._wrapper, self._wrapper.run_kernel(command))
            while self._unheard:
                self._proxy.send(self._unheard.popleft(), droppable=True)

    def _prepare(self, command: NextKernelCommand) -> None:
        if self._wrapper is not None and not self._wrapper.stopping:
            self._wrapper.prepare(command)

    def _park(self, command: ParkCommand) -> None:
        self._drop()
        if self._wrapper is not None and not self._wrapper.stopping:
            self._wrapper.park(KERNEL_END_PATIENCE)
            self._kept_until = time.monotonic() + command.seconds

    def _signal(self, command: SignalCommand) -> None:
        if self._wrapper is not None:
            self._wrapper.pass_on(command)

    def _watch(self, command: WatchCommand) -> None:
        self._watched = command  # for a launcher that comes later, too
        if self._wrapper is not None:
            self._wrapper.pass_on(command)

    def _stop(self, command: StopCommand) -> None:
        if not command.spares:
            self._drop()
        if self._wrapper is not None:
            self._wrapper.stop()
        else:
            self._proxy.send(StoppedEvent())

    # -- the wrapper beside ------------------------------------------------------------------------

    def _take(self) -> None:
        """It takes the place of the one that has ended, unless it has ended as well, which has been told."""
        beside = self._beside
        if beside is None or not beside.ready or self._wrapper is not None:
            return
        self._beside, self._wrapper, self._said = None, beside.wrapper, beside.said
        self._outputs.reverse()
        self._proxy.send(StartedEvent(beside.wrapper.process.pid))
        self._tell(beside.wrapper, beside.events)

    def _drop(self) -> None:
        if self._beside is not None:
            self._beside.wrapper.stop()

    def _look_after_beside(self, beside: Beside) -> None:
        status = beside.wrapper.reap()
        if status is None:
            beside.on_time()
            return
        others = [wrapper.process.pid for wrapper in (self._wrapper,) if wrapper is not None]
        beside.wrapper.finish(others)
        for line in beside.wrapper.output.drain():
            self._proxy.send(OutputEvent(line.stream, line.text, beside.number))
        self._proxy.send(WrapperExitedEvent(beside.number, status))
        reaper.reap(beside.wrapper.descendants, reaper.ORPHANS_PATIENCE)
        self._beside = None

    # -- the wrapper -------------------------------------------------------------------------------

    def _pass_on_output(self, output: WrapperOutput, fd: int) -> None:
        for line in output.read(fd):
            beside = self._beside
            if beside is not None and beside.wrapper.output is output:
                line = OutputEvent(line.stream, line.text, beside.number)
                _note_line(line, beside.wrapper, beside.said)
            elif self._wrapper is not None:
                _note_line(line, self._wrapper, self._said)
            wrapper = self._wrapper
            if wrapper is not None and wrapper.granted and (wrapper.next_runs or self._proxy.closed):
                self._unheard.append(line)
            else:
                self._proxy.send(line, droppable=True)

    def _pass_on_events(self, wrapper: Wrapper) -> None:
        if self._beside is not None and self._beside.wrapper is wrapper:
            granted = self._beside.on_launcher_ready()
            if granted is not None:
                self._proxy.send(granted)
            return
        was_parked = wrapper.parked
        events = wrapper.on_launcher_ready()
        self._tell(wrapper, events, count_deaths=not was_parked)

    def _tell(self, wrapper: Wrapper, events: list[Event], *, count_deaths: bool = True) -> None:
        for event in events:
            if isinstance(event, KernelExitedEvent) and event.status and count_deaths:
                event = self._count_death(wrapper, event)
            self._proxy.send(event)
            if isinstance(event, LaunchedEvent):
                wrapper.pass_on(self._watched)

    def _count_death(self, wrapper: Wrapper, event: KernelExitedEvent) -> KernelExitedEvent:
        """A kernel has died by itself: one time too often gives the lease back."""
        too_often = not wrapper.stopping and self._deaths.note(time.monotonic())
        if too_often:
            wrapper.stop()
        return KernelExitedEvent(event.status, event.kernel, too_often, event.oom_kills)

    def _look_after(self, wrapper: Wrapper) -> None:
        """Tell the wrapper's end, or bring it nearer."""
        status = wrapper.reap()
        if status is None:
            now = time.monotonic()
            if self._kept_until is not None and not self._restarter.alive:
                self._kept_until = min(self._kept_until, now + KEPT_WITHOUT_RESTARTER)
            if self._kept_until is not None and now >= self._kept_until and not wrapper.stopping:
                self._give_back(wrapper)
            wrapper.on_time()
            return
        others = [] if self._beside is None else [self._beside.wrapper.process.pid]
        events: list[Event] = [*wrapper.finish(others), *wrapper.output.drain()]
        events.append(WrapperExitedEvent(wrapper.started.number, status))
        if wrapper.stopping:
            events.append(StoppedEvent())
        for event in events:
            self._proxy.send(event)
        reaper.reap(wrapper.descendants, reaper.ORPHANS_PATIENCE)
        self._wrapper = None
        self._kept_until = None


def _note_line(line: OutputEvent, wrapper: Wrapper, said: deque[OutputEvent]) -> None:
    """Keep what a wrapper says, and not what a kernel does."""
    if not wrapper.granted:
        said.append(line)
