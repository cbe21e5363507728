"""The keeper: the process that keeps a lease over the network while its program runs.

Forked by the wrapper, in a session of its own. It holds the connection, says `Alive`, comes back with
`Resume` after whatever happened to the network, and ends the program (`kept_program`) in time where that
fails (`reach`). It releases the lease when the last process that could use its GPUs is gone (`life_pipe`).

One thread with one poll does all of that; another one dials (`redial`). Nothing here may block: neither a
network that swallows, nor a frozen wrapper, nor a reader of the log that hangs.
"""

from __future__ import annotations

from bitfusion_client.errors import BitfusionError, PoolUnreadable
from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.one_line import one_line
from bitfusion_pool.client.connections.network_service import contact_problem
from bitfusion_pool.client.keeper import wrapper_link
from bitfusion_pool.client.keeper.kept_program import SIGTERM_S, KeptProgram
from bitfusion_pool.client.keeper.redial import Redial
from bitfusion_pool.client.keeper.wrapper_link import BEATS, WrapperLink, log
from bitfusion_pool.ledger.liveness import clock
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Alive, Cancel, Release, Renew, Resume
from bitfusion_pool.messages.from_service import Granted, Refused, Released, Renewed

if TYPE_CHECKING:
    import socket as _socket

    from bitfusion_pool.client.connections.network_connection import NetworkConnection
    from bitfusion_pool.client.connections.network_service import NetworkService
    from bitfusion_pool.client.keeper.reach import Reach
    from bitfusion_pool.client.kernel_state_file import KernelStateFile
    from bitfusion_pool.messages.message import Message

_RETRY = 0.1  # of the time between two words: the pause after a dial that failed


@dataclass(frozen=True, slots=True)
class Kept:
    """What a keeper keeps: a lease, or a reservation while a program uses it.

    `any_end_counts`: the service takes every end of a connection for the client's own, as older ones do.
    `state_file`: where the kernel under the lease says what it does; empty: nowhere.
    """

    service: NetworkService
    entry_id: str
    secret: str
    reserved: bool
    heartbeat_s: float
    any_end_counts: bool
    state_file: str = ""


class LeaseKeeper:
    """The keeper's loop.

    Args:
        kept: The lease.
        reach: What was known of the service when the keeper was started.
        connection: The lease's connection, if there is one.
        life: The writing end of the life pipe.
        wrapper: Messages to and from the wrapper.
    """

    def __init__(
        self,
        kept: Kept,
        reach: Reach,
        connection: NetworkConnection | None,
        life: int,
        wrapper: _socket.socket,
    ) -> None:
        # here, not when they are needed, and not at the start of every `bitfusion run`
        from bitfusion_client.command import client_output

        self._words = client_output
        self._kept = kept
        self._reach = reach
        self._connection = connection
        self._life = life
        self._wrapper = WrapperLink(wrapper)
        self._program = KeptProgram(life)
        now = clock()
        self._next_word = now
        self._sent_at: float | None = None  # of the word that is not answered
        self._next_beat = now
        self._out_since: float | None = None
        self._why = ""  # why the pool is out of reach
        self._said = ""  # by the service, before it ends the connection
        self._told_end: float | None = None  # the end that was told on stderr
        self._releasing = False
        self._lease_has_ended = False
        self._is_over = False
        self._has_failed = False  # since the pool is out of reach
        self._kernel: KernelStateFile | None = None
        if kept.state_file:
            from bitfusion_pool.client.kernel_state_file import KernelStateFile

            self._kernel = KernelStateFile(kept.state_file)
        self._redial = Redial(kept.service, kept.heartbeat_s * _RETRY)
        if connection is None:
            self._trouble("the process that kept the connection ended")

    def run(self) -> None:
        """Until the lease is released, or over."""
        while not self._is_over:
            self._wait()
            self._hear_service()
            self._take_dialed()
            self._hear_wrapper()
            if not self._releasing and not self._program.is_held:
                self._release()
            self._speak(clock())
            self._look_after_program(clock())
        self._wrapper.tell(wrapper_link.DONE)

    # --- waiting ---------------------------------------------------------------------------------------

    def _wait(self) -> None:
        from select import POLLIN, poll

        due = [self._next_beat, self._next_word]
        if not self._is_out and self._sent_at is not None:
            due.append(self._sent_at + self._kept.heartbeat_s)
        if self._may_dial:
            due.append(self._redial.next_at)
        if self._kernel is not None and self._may_report:
            due.append(self._kernel.next_look)
        if self._program.kill_at is not None:
            due.append(self._program.kill_at)
        else:
            due.append(self._reach.killed_at if self._releasing else self._reach.ends_at)
        watched = poll()
        watched.register(self._redial.fileno(), POLLIN)
        if not self._releasing:
            watched.register(self._life, 0)
        if self._connection is not None:
            watched.register(self._connection.fileno(), POLLIN)
        if self._wrapper.fileno() >= 0:
            watched.register(self._wrapper.fileno(), POLLIN)
        # at least a millisecond: a time that has passed and cannot be acted upon must not become a busy loop
        watched.poll(max(1.0, (min(due) - clock()) * 1000 + 1))

    # --- the service -----------------------------------------------------------------------------------

    @property
    def _is_out(self) -> bool:
        return self._out_since is not None

    @property
    def _may_dial(self) -> bool:
        return self._is_out and not self._redial.is_under_way and not self._lease_has_ended

    @property
    def _may_report(self) -> bool:
        return self._connection is not None and not self._is_out and not self._releasing

    def _hear_service(self) -> None:
        connection = self._connection
        while connection is not None and connection is self._connection:
            try:
                message = connection.next_message(0)
            except PoolUnreadable as error:
                self._drop(self._said or contact_problem(error), told=False)
                return
            if message is None:
                return
            self._on_message(message)

    def _on_message(self, message: Message) -> None:
        if isinstance(message, Released):
            self._is_over = True
        elif isinstance(message, Renewed):
            self._say(Cancel())  # this client uses the reservation no more
        elif isinstance(message, Alive):
            if self._sent_at is not None:
                self._reach.answered(self._sent_at)
                self._sent_at = None
                self._back()
        elif isinstance(message, Refused):
            self._on_refusal(message)

    def _on_refusal(self, refusal: Refused) -> None:
        said = one_line(refusal.message)
        if refusal.code in (refusal_codes.SERVICE_ENDS, refusal_codes.REPLACED):
            # replaced by a dial of ours, whose answer is on its way
            self._drop(said, told=True)
        elif refusal.code == refusal_codes.LEASE_OVER:
            self._lease_has_ended = True
            self._was_ended(said)
        elif refusal.code == refusal_codes.ENDED:
            self._was_ended(said)  # its GPUs are free when this client says so
        else:
            self._said = self._why = said  # the connection ends with it

    def _was_ended(self, said: str) -> None:
        if self._releasing:
            self._is_over = self._lease_has_ended
            return
        place = self._kept.service.place
        self._end_program(f"pool {place} has ended the lease, so the program was ended: {said}", SIGTERM_S)

    def _drop(self, why: str, told: bool) -> None:
        """The connection is over; `told`: the service has said so, and keeps the lease."""
        if self._connection is not None:
            if self._said:  # it takes this client no more, which hangs up so that others need not wait
                self._connection.close()
                self._reach.hung_up()
            else:
                self._give_up(self._connection, counts=not told)
            self._connection = None
        self._sent_at = None
        self._said = ""
        self._trouble(why)

    def _give_up(self, connection: NetworkConnection, counts: bool) -> None:
        """Let go of a connection without a word; `counts`: the service may take it for the lease's."""
        connection.give_up()
        if counts and self._kept.any_end_counts:
            self._reach.hung_up()

    def _trouble(self, why: str) -> None:
        self._why = why
        if self._out_since is None:
            self._out_since = clock()
            self._redial.next_at = self._out_since

    def _back(self) -> None:
        if self._out_since is not None and self._told_end is not None:
            seconds = round(clock() - self._out_since)
            log("INFO", self._words.format_back_in_reach(self._kept.service.place, seconds))
        self._out_since = self._told_end = None
        self._has_failed = False
        self._why = ""

    def _speak(self, now: float) -> None:
        """Say what is due: a word to the service, a beat to the wrapper, a new dial, a line in the log."""
        if not self._is_out and self._sent_at is not None and now >= self._sent_at + self._kept.heartbeat_s:
            self._trouble(f"no answer in {self._kept.heartbeat_s:g} s")
        if now >= self._next_word:
            self._next_word = now + self._kept.heartbeat_s
            if self._sent_at is None and self._connection is not None and not self._releasing:
                self._say(Alive())
        self._report(now)
        if self._may_dial and now >= self._redial.next_at:
            kept = self._kept
            back = Resume(kept.entry_id, kept.secret)
            self._redial.begin(self._last_word() if self._releasing else back)
        if now >= self._next_beat:
            self._next_beat = now + self._kept.heartbeat_s / BEATS
            self._wrapper.tell(wrapper_link.BEAT, f"{self._reach.proven!r} {self._reach.closed:d}")
        self._tell_of_trouble(now)

    def _say(self, message: Message) -> None:
        assert self._connection is not None
        self._sent_at = clock()
        try:
            self._connection.send(message)
        except BitfusionError as error:
            self._drop(contact_problem(error), told=False)

    def _report(self, now: float) -> None:
        """Pass on what the kernel under the lease says that it does, without an answer."""
        if self._kernel is None or not self._may_report:
            return
        activity = self._kernel.look(now)
        if activity is None:
            return
        from bitfusion_pool.client.kernel_state_file import report

        assert self._connection is not None
        try:
            self._connection.send(report(self._kept.entry_id, self._kept.secret, activity))
        except BitfusionError as error:
            self._drop(contact_problem(error), told=False)
        else:
            self._kernel.told(activity, now)

    def _tell_of_trouble(self, now: float) -> None:
        if self._out_since is None or self._releasing or self._program.kill_at is not None:
            return
        if now < self._out_since + self._kept.heartbeat_s / BEATS:
            return  # a service that starts anew is back sooner
        ends_at = self._reach.ends_at
        if self._told_end is None or ends_at < self._told_end - 1:
            self._told_end = ends_at
            left = max(0, round(ends_at - now))
            log("WARN", self._words.format_out_of_reach(self._kept.service.place, self._why, left))

    def _take_dialed(self) -> None:
        dialed = self._redial.take()
        if dialed is None:
            return
        connection, sent_at, answer = dialed.connection, dialed.sent_at, dialed.answer
        if isinstance(answer, Granted) and connection is not None and sent_at is not None:
            if self._connection is not None:
                self._connection.give_up()
            self._connection, self._sent_at = connection, None
            if self._kernel is not None:
                self._kernel.forget()
            self._reach.answered(sent_at)
            self._back()
            if self._releasing:
                self._say(self._last_word())
            return
        if connection is not None:
            self._give_up(connection, counts=isinstance(answer, BitfusionError))
        if isinstance(answer, Refused):
            self._on_refusal(answer)
            self._said = ""  # of another connection than the lease's
        elif isinstance(answer, (Released, Renewed)):
            self._is_over = True  # on a new connection there is nothing to cancel
        elif isinstance(answer, BitfusionError) and self._is_out:
            self._why = contact_problem(answer)
            self._has_failed = True
            self._tell_away()

    # --- the wrapper and the program -------------------------------------------------------------------

    def _hear_wrapper(self) -> None:
        while (heard := self._wrapper.hear()) is not None:
            word, descriptor = heard
            if word == wrapper_link.PROGRAM:
                self._program.started(descriptor)
            elif word == wrapper_link.END:
                self._wrapper_has_ended_program()
            elif not word and not self._program.has_ended and self._program.is_held:
                self._end_program("", SIGTERM_S)  # nobody else is left who could

    def _wrapper_has_ended_program(self) -> None:
        self._program.has_ended = True
        if self._program.is_held:
            self._wrapper.tell(wrapper_link.USED)
            return
        if not self._releasing:
            self._release()
        self._tell_away()

    def _tell_away(self) -> None:
        """The wrapper does not wait for a service that could not be reached once."""
        if self._releasing and self._has_failed:
            self._wrapper.tell(wrapper_link.AWAY, self._why)

    def _look_after_program(self, now: float) -> None:
        if self._program.kill_at is not None:
            self._program.kill_if_due(now)
        elif not self._releasing and now >= self._reach.ends_at:
            seconds = round(now - self._reach.proven)
            left = max(0.0, self._reach.killed_at - now)
            self._end_program(self._words.format_pool_lost(self._kept.service.place, seconds), left)
        elif self._releasing and now >= self._reach.killed_at:
            self._is_over = True  # the service frees it by itself

    def _end_program(self, why: str, patience_s: float) -> None:
        if self._program.kill_at is None:
            self._wrapper.tell(wrapper_link.LOST, why)
            self._program.end(patience_s)

    # --- the end ---------------------------------------------------------------------------------------

    def _last_word(self) -> Message:
        kept = self._kept
        return (Renew if kept.reserved else Release)(kept.entry_id, kept.secret)

    def _release(self) -> None:
        self._releasing = True
        self._program.kill_at = None
        if self._lease_has_ended:
            self._is_over = True
        elif self._connection is not None:
            self._say(self._last_word())
