"""A program in a pod that behaves as if it ran here: its output, its input, its signals and its end."""

from __future__ import annotations

import errno
import os
import signal
import ssl
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods import signals
from bitfusion_pods.command import stdio
from bitfusion_pods.command.dialing import Dialing
from bitfusion_pods.spawn import (
    Ended,
    Failed,
    ended_from_json,
    failed_from_json,
    size_to_bytes,
    started_from_json,
)
from bitfusion_pods.stream.channels import STDERR, STDIN, STDOUT
from bitfusion_pods.stream.frames import Frame, Kind
from bitfusion_pods.stream.link import Lost
from bitfusion_pods.stream.mirror import sockets_in
from bitfusion_pods.stream.session import Session

if TYPE_CHECKING:
    from typing import Protocol

    from bitfusion_pods.command.terminal import LocalTerminal
    from bitfusion_pods.spawn import Spawn, Started
    from bitfusion_pods.stream.channel import Channel

    class Hears(Protocol):
        """What is told of the program and of the connection while it runs."""

        def begins(self, started: Started) -> None:
            """The program runs; before anything that it says."""

        def lost(self, why: str, seconds_left: float) -> None:
            """It is gone, for longer than a moment; the program is given up after so many seconds more."""

        def back(self, seconds: float) -> None:
            """It was gone for so long."""

        def is_over(self) -> bool:
            """Whether the pod has ended, as far as is known; asked at each turn of a loss: it never waits."""


FIRST = 20.0
"""Seconds for the agent of a pod that runs to answer."""
RESUME = 30.0
"""Seconds for a lost connection to come back: as long as the agent waits."""
TELL_AFTER = 1.0
"""Seconds after which a loss is told: a connection that is made anew at once is nobody's news."""
STUCK = 1.0
"""Seconds in which nobody reads the output of a program that has ended, after a signal that ends commands."""
FORWARDED = (*signals.ENDS, signal.SIGUSR1, signal.SIGUSR2)

_OF_TERMINAL = (signal.SIGWINCH, signal.SIGCONT)
"""Its window has another size; this process goes on, after whoever was in front has set it up for itself."""
_OUTPUTS = ((STDOUT, 1), (STDERR, 2))


class NotReached(Exception):
    """The agent has not answered in time, or does not any more; the text says why."""


class PodOver(NotReached):
    """Nobody listens there any more: the agent has ended, and with it the program."""


class RemoteProgram:
    """One run.

    Args:
        address: Of the agent: an IP address and a port.
        context: From `tls.context`.
        asked: The program.
        hears: Is told of trouble.

    Where stdin and stdout are a terminal, the program has one like it, whose keys all go there; else pipes.
    """

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext, asked: Spawn, hears: Hears) -> None:
        self._session = Session(os.urandom(16), of_pod=False)
        self._dialing = Dialing(address, context, self._session)
        self._asked = asked
        self._hears = hears
        self._lost_at = time.monotonic()
        self._told = False
        self._outcome: Ended | Failed | None = None
        self._terminal = _terminal_here()
        self._runs = False
        self._ended: Ended | None = None  # more output may come
        self._told_to_end = False
        self._written = self._written_at = 0.0
        self._channels: dict[int, Channel] = {}
        self._let_go: set[int] = set()
        self._signals = signals.as_bytes((*FORWARDED, *(_OF_TERMINAL if self._terminal else ())))
        self._session.others[self._signals] = self._forward

    def run(self) -> Ended | Failed:
        """Run it to its end, with this process's stdin, stdout and stderr.

        Raises:
            NotReached, PodOver, signals.Interrupted: Nobody knows how it ended.
            ProtocolError: The agent is none, or of a version that cannot be understood.
        """
        session, asked = self._session, self._asked
        terminal = None if self._terminal is None else self._terminal.asked()
        sockets = tuple(sorted(sockets_in(asked.folder))) if asked.folder else ()
        session.link.put(Kind.SPAWN, 0, asked.as_here(terminal, stdio.closed(), sockets).to_json())
        if terminal is None:
            self._use_pipes()
        if asked.folder:
            session.mirror_folder(asked.folder)
        try:
            while self._outcome is None or session.channels.wants_write:
                self._turn()
                if self._ended is not None and self._is_stuck():
                    return self._ended
            session.link.put(Kind.BYE)
            session.link.flush()
        except Lost:
            assert self._outcome is not None
        finally:
            if self._terminal is not None:
                self._terminal.leave()
            session.close()
        return self._outcome

    def _is_stuck(self) -> bool:
        """Whether a signal shall end it, and only those do not let it who read its output, as here."""
        if not self._told_to_end:
            return False
        written, now = sum(channel.written for channel in self._channels.values()), time.monotonic()
        if written != self._written or not self._session.channels.wants_write:
            self._written, self._written_at = written, now
        return now - self._written_at >= STUCK

    @property
    def not_written(self) -> str:
        """Why the end of the program's output could not be written here, as on a full disk; empty: it was."""
        failed = [self._channels[number].failed for number in (STDOUT, STDERR) if number in self._channels]
        codes = [code for code in failed if code not in (0, errno.EPIPE, errno.EBADF)]
        return os.strerror(codes[0]) if codes else ""

    # -- what is read and written here ---------------------------------------------------------------

    def _use_pipes(self) -> None:
        add = self._session.channels.add
        self._channels[STDIN] = add(STDIN, stdio.source(0), None, shared=True)
        for number, here in _OUTPUTS:
            self._channels[number] = add(number, None, stdio.sink(here), shared=True)

    def _begin(self, has_terminal: bool) -> None:
        """The program runs: only now it is known whether it has the terminal that it was to get."""
        if self._terminal is None:
            return
        if not has_terminal:
            self._terminal = None
            self._use_pipes()
            return
        add = self._session.channels.add
        self._channels[STDIN] = add(STDIN, stdio.source(0), stdio.sink(1), shared=True)
        if not os.isatty(2):
            self._channels[STDERR] = add(STDERR, None, stdio.sink(2), shared=True)
        self._terminal.enter()
        self._tell_size()

    def _tell_size(self) -> None:
        assert self._terminal is not None
        rows, columns = self._terminal.size()
        if rows:
            self._session.link.put(Kind.WINDOW_SIZE, 0, size_to_bytes(rows, columns))

    def _look_at_stdio(self) -> None:
        """Once a turn: who may read here, and what has ended there."""
        channel, terminal = self._channels.get(STDIN), self._terminal
        if channel is None:
            return
        channel.paused = not stdio.is_in_front(0) or (terminal is not None and not terminal.is_raw)
        if terminal is not None:
            if channel.source_ended and channel.source is not None:
                self._session.channels.end(channel)  # the window is closed: so is the program's
            return
        for number, here in ((STDIN, 0), *_OUTPUTS[:1]):
            if here not in self._let_go and self._channels[number].is_over:
                self._let_go.add(here)
                stdio.let_go(here)

    def _turn(self) -> None:
        """One. Raises Lost only when the program's end is known."""
        link = self._session.link
        self._look_at_stdio()
        if link.connection is None and self._outcome is None:
            self._look_at_loss()
            self._dialing.go_on()
        patience = 1.0 if link.connection is not None else min(0.2, self._dialing.seconds_to_next_step)
        try:
            self._session.turn(patience, self._take)
        except Lost as lost:
            link.detach()
            if self._outcome is not None and not self._session.channels.wants_write:
                raise
            self._lost_at, self._dialing.why = time.monotonic(), str(lost)
            self._dialing.refused = False
            return
        if link.connection is not None:
            self._note_back()

    def _take(self, frame: Frame) -> None:
        if frame.kind is Kind.SPAWNED:
            if not self._runs:
                self._runs = True
                started = started_from_json(frame.payload)
                self._hears.begins(started)
                self._begin(started.has_terminal)
        elif frame.kind is Kind.ENDED:
            self._ended = ended_from_json(frame.payload)
            self._told_to_end &= self._ended.status < 0  # else it has taken the signal as its word to end
        elif frame.kind is Kind.EXIT:
            self._outcome = self._ended = ended_from_json(frame.payload)
        elif frame.kind is Kind.FAILED:
            self._outcome = failed_from_json(frame.payload)

    # -- the connection ----------------------------------------------------------------------------

    def _look_at_loss(self) -> None:
        gone, why = time.monotonic() - self._lost_at, self._dialing.why
        was_there = self._session.link.connections > 0
        if was_there and self._dialing.refused:
            raise PodOver(why)
        limit = RESUME if was_there else FIRST
        if gone >= limit:
            raise NotReached(why)
        if not was_there or gone < TELL_AFTER:
            return
        if not self._told:
            self._told = True
            if self._terminal is not None:
                self._terminal.leave()  # for the words, and for Ctrl-C: the keys reach nobody now
            self._hears.lost(why, limit - gone)
        if self._hears.is_over():
            raise PodOver(why)

    def _note_back(self) -> None:
        if self._told:
            self._told = False
            self._hears.back(time.monotonic() - self._lost_at)
            if self._terminal is not None and self._runs:
                self._terminal.enter()

    def _forward(self) -> None:
        for number in signals.read(self._signals):
            if number in _OF_TERMINAL:
                self._take_terminal_back(number)
                continue
            self._told_to_end |= number in signals.ENDS
            is_cut = self._session.link.connection is None and self._outcome is None
            if is_cut and number in signals.ENDS:
                raise signals.Interrupted(number)
            if self._ended is None:
                self._session.link.put(Kind.SIGNAL, 0, bytes([number]))

    def _take_terminal_back(self, number: int) -> None:
        if self._terminal is None or not self._runs:
            return
        if number == signal.SIGCONT and not self._told:
            self._terminal.enter()
        self._tell_size()


def _terminal_here() -> LocalTerminal | None:
    if not (os.isatty(0) and os.isatty(1)):
        return None
    from bitfusion_pods.command.terminal import LocalTerminal  # a kernel's start does not pay for that

    return LocalTerminal.here()
