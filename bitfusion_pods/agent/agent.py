"""The agent: who may come in, how long it waits for a client that is gone, and the order of the end."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import sys
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods import signals
from bitfusion_pods.agent import program
from bitfusion_pods.agent.program import CannotStart, Program
from bitfusion_pods.agent.strangers import Strangers
from bitfusion_pods.agent.terminal import resize
from bitfusion_pods.spawn import Ended, size_from_bytes, spawn_from_json
from bitfusion_pods.stream.channels import STDERR, STDIN, STDOUT
from bitfusion_pods.stream.frames import Frame, Kind, ProtocolError
from bitfusion_pods.stream.greeting import Greeting
from bitfusion_pods.stream.kept_bytes import AnotherHistory
from bitfusion_pods.stream.link import Lost
from bitfusion_pods.stream.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_pods.stream.channel import Channel
    from bitfusion_pods.stream.handshake import Handshake

FIRST_CLIENT = 60.0
"""Seconds for the first client to come."""
CLOSED = 3.0
"""Seconds for one to come back that has closed the connection without a farewell: its process has died."""
RESUME = 30.0
"""The same after any other loss: its network is broken."""
LAST_OUTPUT = 0.5
"""Seconds of silence after the program's end in which what others have open of its output is listened to."""
TERM_PATIENCE = 2.5
"""Seconds that a program has after SIGTERM."""

_TURN = 1.0


class Agent:
    """The pod has one.

    Args:
        listener: Bound to the pod's port.
        context: From `tls.context`.
        log: Gets one line for each thing that happens.
    """

    def __init__(self, listener: socket.socket, context: ssl.SSLContext, log: Callable[[str], None]) -> None:
        self._log = log
        self._session: Session | None = None
        self._program: Program | None = None
        self._terminal: Channel | None = None
        self.told: Ended | None = None
        """How the program has ended, once that was told."""
        self._gone_until: float | None = time.monotonic() + FIRST_CLIENT
        self._why_gone = "no client has come"
        self._has_died = True  # the client, or it never was
        self._said_at = 0.0
        self._end_told = self._exit_sent = False
        self._bye = False
        self._told_to_end: float | None = None
        self._signals = signals.as_bytes((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT))
        listener.setblocking(False)
        self._others: dict[int, Callable[[], object]] = {
            listener.fileno(): lambda: self._strangers.accept(listener),
            self._signals: self._on_signals,
        }
        self._strangers = Strangers(context, self._greet, self._let_in, self._others, log)

    def run(self) -> str:
        """Serve until nothing is left to do; says why. What still runs in the pod ends with process 1."""
        idle = Session(bytes(16), of_pod=True)  # until there is one: only the listener and the signals
        while (why := self._why_over()) is None:
            session = self._session or idle
            session.others = self._others
            self._strangers.begin_turn()
            try:
                session.turn(self._patience(), self._take)
                self._tell_end()
            except Lost as lost:
                session.link.detach()
                self._has_died = lost.closed
                self._gone_until = time.monotonic() + (CLOSED if lost.closed else RESUME)
                self._why_gone = f"the client is gone: {lost}"
                self._log(str(lost))
            except ProtocolError as error:
                return f"the client does not follow the protocol: {error}"
        self._flush()
        return why

    def _patience(self) -> float:
        """Seconds for one turn at most."""
        now = time.monotonic()
        limits = [_TURN, *(limit - now for limit in self._strangers.limits)]
        limits += [limit - now for limit in (self._gone_until, self._told_to_end) if limit is not None]
        if self._program is not None and not self._program.runs:
            limits.append(0.05)
        return max(0.0, min(limits))

    def _why_over(self) -> str | None:
        now, runs = time.monotonic(), self._program is not None and self._program.runs
        if self._bye and (self._exit_sent or not runs):
            return "the client has left"
        if self._bye and self._told_to_end is None:
            self._end_program()
        if self._gone_until is not None and now >= self._gone_until:
            return self._why_gone
        if self._told_to_end is not None and (now >= self._told_to_end or not runs) and self._is_told():
            return "asked to end"
        return None

    @property
    def is_left(self) -> bool:
        """Whether it has ended because its client has died: a client that lives deletes its pod itself."""
        return self._has_died and self._gone_until is not None and time.monotonic() >= self._gone_until

    def _is_told(self) -> bool:
        """Whether the client knows of the end, or never will."""
        link = None if self._session is None else self._session.link
        runs = self._program is not None and self._program.runs
        return runs or link is None or link.connection is None or (self._exit_sent and not link.wants_write)

    # -- who comes in ------------------------------------------------------------------------------

    def _greet(self, theirs: Greeting | None) -> Greeting:
        """The client has shown its key: it is the one, whose process may have been cut off."""
        assert theirs is not None
        if self._session is None:
            self._session = Session(theirs.session, of_pod=True)
        if theirs.session != self._session.link.session:
            raise ProtocolError("another session is using this pod")
        if (
            self._session.link.connection is not None
        ):  # which ends by the greeting, whatever becomes of this one
            self._gone_until = time.monotonic() + RESUME
            self._why_gone = "the client has connected again but did not resume"
            self._has_died = False
        return self._session.link.greet()

    def _let_in(self, handshake: Handshake, theirs: Greeting) -> None:
        assert self._session is not None
        assert handshake.said is not None
        try:
            self._session.link.attach(handshake.connection, handshake.said, theirs)
        except AnotherHistory as error:
            handshake.close()
            self._strangers.tell(str(error))
        else:
            self._gone_until = None

    # -- the program -------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.SPAWN and self._program is None:
            self._spawn(frame.payload)
        elif frame.kind is Kind.SIGNAL and self._program is not None and frame.payload:
            self._program.signal(frame.payload[0])
        elif frame.kind is Kind.WINDOW_SIZE:
            self._resize(*size_from_bytes(frame.payload))
        elif frame.kind is Kind.BYE:
            self._bye = True

    def _spawn(self, payload: bytes) -> None:
        session = self._session
        assert session is not None
        asked = spawn_from_json(payload)
        try:
            self._program = started = Program.start(
                asked, os.environ, lambda: session.mirror_folder(asked.folder, asked.sockets)
            )
        except CannotStart as error:
            session.link.put(Kind.FAILED, 0, error.failed.to_json())
            self._log(f"the program cannot be started: {error}")
            return
        channels, pipes = session.channels, started.pipes
        if started.terminal is not None:
            self._terminal = channels.add(STDIN, started.terminal, started.terminal)
        if 0 in pipes:
            channels.add(STDIN, None, pipes[0])
        for number, channel in ((1, STDOUT), (2, STDERR)):
            if number in pipes:
                channels.add(channel, pipes[number], None)
        session.link.put(Kind.SPAWNED, 0, started.known.to_json())
        self._log(f"runs {asked.argv[0]}")

    def _resize(self, rows: int, columns: int) -> None:
        if self._terminal is not None and self._terminal.source is not None:
            try:
                resize(self._terminal.source, rows, columns)
            except OSError:
                pass  # it is just ending

    def _tell_end(self) -> None:
        """Once all that the program has said has been passed on."""
        ended, session = self._program, self._session
        if ended is None or ended.status is None or session is None or self._exit_sent:
            return
        if not self._end_told:
            self._end_told = True
            session.link.put(Kind.ENDED, 0, Ended(ended.status).to_json())
        channels, now = session.channels, time.monotonic()
        if channels.drain() or channels.waits_for_credit:
            self._said_at = now
        if not channels.all_sent and now - max(self._said_at, ended.ended_at) < LAST_OUTPUT:
            return
        self._exit_sent = True
        self.told = told = Ended(ended.status, ended.memory_ran_out, self._told_to_end is not None)
        session.link.put(Kind.EXIT, 0, told.to_json())
        self._log(f"the program has ended: {ended.status}")

    def _end_program(self) -> None:
        self._told_to_end = time.monotonic() + TERM_PATIENCE
        if self._program is not None:
            self._program.signal(signal.SIGTERM)

    # -- signals -----------------------------------------------------------------------------------

    def _on_signals(self) -> None:
        numbers = signals.read(self._signals)
        program.reap(self._program)
        if (signal.SIGTERM in numbers or signal.SIGINT in numbers) and self._told_to_end is None:
            self._log("asked to end")
            self._end_program()

    def _flush(self) -> None:
        if self._session is not None:
            try:
                self._session.link.flush()
            except Lost:
                pass
            self._session.close()


def write_line(text: str) -> None:
    """One line of the pod's log."""
    sys.stderr.write(f"bitfusion agent {time.strftime('%H:%M:%S')}: {text}\n")
    sys.stderr.flush()
