"""A client on another machine as the service sees it, many in one event loop: for the randomised test.

It keeps a lease as `client.keeper` does, with the same rule (`client.reach`) for how long its program may go
on; only there is no program. What it believes to hold it writes into a `Book`, which all clients share: the
proof, apart from the service, of what was really handed out.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import struct
import time
from collections import Counter

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.client.keeper.reach import Reach
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import SEGMENTS, Acquire, Alive, Cancel, Hello, Release, Resume
from bitfusion_pool.messages.from_service import (
    Granted,
    Refused,
    Released,
    Waiting,
    Welcome,
    parse_from_service,
)
from bitfusion_pool.messages.lines import LineBuffer
from bitfusion_pool.messages.message import LONGEST_FROM_SERVICE, PROTOCOL, Message

HOST = "127.0.0.1"
LOST = (OSError, asyncio.TimeoutError, EOFError)
"""What a network does to a conversation."""


def clock() -> float:
    """As the keeper's: it goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Times:
    """What the service's `Welcome` tells, and how long a client waits for an answer; seconds."""

    def __init__(self, closed_s: float, silent_s: float, heartbeat_s: float) -> None:
        self.closed_s, self.silent_s, self.heartbeat_s = closed_s, silent_s, heartbeat_s
        self.answer_s = closed_s / 5


class Holding:
    """One lease as its client sees it."""

    def __init__(self, granted: Granted, reach: Reach, owner: str) -> None:
        self.entry_id, self.secret = granted.entry.entry_id, granted.secret
        self.shares: tuple[Share, ...] = tuple(granted.entry.shares)
        self.reach = reach
        self.owner = owner
        self.over = False
        """Whether its program has ended: given back, killed with its client, or ended by the rule."""
        self.planned_until: float | None = None
        """Until when the test lets it run."""

    def holds(self, now: float) -> bool:
        """Whether a program may use the GPUs at this moment, and nobody else."""
        return not self.over and now < self.reach.killed_at


class Book:
    """Who holds what, by the clients' own word; looked at whenever somebody gets something."""

    def __init__(self, total: dict[tuple[str, int], int], times: Times) -> None:
        self._total = total
        self._most_lag_s = times.closed_s / 4
        self._holdings: list[Holding] = []
        self.grants = 0
        self.lag_s = 0.0
        """For how long this process stood still lately: then no client could do in time what it should."""
        self.inconclusive = 0
        self.kept_too_short: list[str] = []
        """Leases that the service said were over while their clients were entitled to them."""
        self.twice: list[str] = []
        """Moments at which a device had more holders than room."""

    def enter(self, holding: Holding) -> None:
        """Somebody has got this."""
        now = clock()
        self.grants += 1
        self._holdings = [each for each in self._holdings if each.holds(now)]
        self._holdings.append(holding)
        held: Counter[tuple[str, int]] = Counter()
        for each in self._holdings:
            for share in each.shares:
                held[share.server, share.number] += share.memory_mib
        for device, memory in held.items():
            if memory > self._total[device]:
                names = [f"{one.owner} {one.entry_id}" for one in self._holdings if _has(one, device)]
                self._note(self.twice, f"{device}: {memory} MiB held by {', '.join(names)}")

    def said_over(self, holding: Holding, why: str) -> None:
        """The service knows this lease no more."""
        if holding.holds(clock()):
            self._note(self.kept_too_short, f"{holding.owner} {holding.entry_id}: {why}")

    def _note(self, where: list[str], what: str) -> None:
        if self.lag_s > self._most_lag_s:
            self.inconclusive += 1
        else:
            where.append(what)


def _has(holding: Holding, device: tuple[str, int]) -> bool:
    return any((share.server, share.number) == device for share in holding.shares)


class Conversation:
    """One connection. `say` and `hear` raise one of `LOST`."""

    def __init__(
        self, plain: socket.socket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader, self._writer = reader, writer
        self._socket = plain
        self._buffer = LineBuffer(LONGEST_FROM_SERVICE)
        self._lines: list[bytes] = []

    def say(self, message: Message) -> None:
        if self._writer.is_closing():
            raise EOFError
        self._writer.write(message.format())

    async def hear(self, seconds: float) -> Message:
        while not self._lines:
            data = await asyncio.wait_for(self._reader.read(1 << 16), seconds)
            if not data:
                raise EOFError
            self._lines += self._buffer.feed(data)
        message = parse_from_service(self._lines.pop(0))
        assert message is not None
        return message

    def close(self) -> None:
        """Without a word, as a process that ends."""
        with contextlib.suppress(OSError):  # it is closed already
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        self.give_up()

    def give_up(self) -> None:
        """Reset it, so that the service does not take that for the client's end."""
        self._writer.transport.abort()


class _Keeping:
    """What goes on while a lease is kept: its connection, what is listened for, a dial beside it."""

    def __init__(self, conversation: Conversation | None) -> None:
        self.hearing: asyncio.Task[Message] | None = None
        self.dialing: asyncio.Task[Conversation | None] | None = None
        self.next_dial = self.next_word = self.wake_at = clock()
        self.moves_to(conversation)

    def moves_to(self, conversation: Conversation | None) -> None:
        """Another connection, or none for now."""
        if self.hearing is not None:
            self.hearing.cancel()
        self.hearing = None
        self.conversation = conversation
        self.said_at: float | None = None
        self.out = conversation is None
        self.is_refused = False

    async def something_happens(self, wants_end: asyncio.Task[bool], until: float) -> None:
        """A message, the result of a dial, the test's word, or the time for something has come."""
        if self.hearing is None and self.conversation is not None:
            self.hearing = asyncio.create_task(self.conversation.hear(3600))
        tasks = [task for task in (self.hearing, self.dialing, wants_end) if task is not None]
        seconds = max(0.001, min(self.wake_at, until) - clock())
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        """Listen and dial no more."""
        tasks = [task for task in (self.hearing, self.dialing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SimulatedClient:
    """One client with its own way to the service; it has at most one lease or request at a time.

    Args:
        name: For messages.
        port: Where it connects: its own proxy.
        context: Trusts the service.
        token: Replaced by the test when it was revoked.
        times: As the service is configured.
        book: Where it writes what it holds.
    """

    def __init__(
        self, name: str, port: int, context: ssl.SSLContext, token: str, times: Times, book: Book
    ) -> None:
        self.name, self.token = name, token
        self.holding: Holding | None = None
        self.waits = False
        self._port, self._context, self._times, self._book = port, context, times, book
        self._task: asyncio.Task[None] | None = None
        self._give_back = asyncio.Event()
        self._conversations: set[Conversation] = set()

    # -- what the test does with it --------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether it has neither lease nor request."""
        return self._task is None or self._task.done()

    def acquire(self, request: GpuRequest, patience_s: float) -> None:
        """Ask for GPUs, wait for so long, and keep what was got until `give_back`."""
        assert self.idle
        self._give_back.clear()
        self._task = asyncio.create_task(self._live(request, patience_s))

    def give_back(self) -> None:
        """End the program and release, or leave the queue."""
        self._give_back.set()

    async def kill(self) -> None:
        """As SIGKILL of the client and all of its processes: no word, and nothing is used from now on."""
        if self.holding is not None:
            self.holding.over = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._hang_up()
        self.holding, self.waits = None, False

    async def end(self) -> None:
        """Give back what there is, or wait until the rule has ended it."""
        self.give_back()
        if self._task is not None:
            await self._task

    async def steal(self, other: Holding) -> str:
        """Try to come back to somebody else's lease under this client's token: the answer's code, or type."""
        conversation = await self._connect()
        try:
            conversation.say(Resume(other.entry_id, other.secret))
            answer = await conversation.hear(self._times.answer_s)
            return answer.code if isinstance(answer, Refused) else answer.TYPE
        finally:
            self._forget(conversation)

    # -- connections -----------------------------------------------------------------------------------

    async def _connect(self) -> Conversation:
        """A conversation that was welcomed. Raises one of LOST, also for a token that is not taken."""
        segment = random.choice(SEGMENTS)
        conversation = await asyncio.wait_for(self._open(segment), self._times.answer_s)
        self._conversations.add(conversation)
        try:
            conversation.say(Hello(PROTOCOL, "simulated", self.token, segment))
            if not isinstance(await conversation.hear(self._times.answer_s), Welcome):
                raise EOFError
        except BaseException:
            self._forget(conversation)
            raise
        return conversation

    async def _open(self, segment: int) -> Conversation:
        plain = socket.socket()
        try:
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
            # asyncio closes a connection by itself where the other side ends it
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await asyncio.get_running_loop().sock_connect(plain, (HOST, self._port))
        except BaseException:
            plain.close()
            raise
        try:
            streams = await asyncio.open_connection(sock=plain, ssl=self._context, server_hostname=HOST)
        except BaseException:
            with contextlib.suppress(OSError):  # it is gone already
                plain.shutdown(socket.SHUT_RDWR)  # or asyncio waits half a minute for the other end's goodbye
            raise
        return Conversation(plain, *streams)

    def _forget(self, conversation: Conversation) -> None:
        self._conversations.discard(conversation)
        conversation.give_up()

    def _hang_up(self) -> None:
        for conversation in self._conversations:
            conversation.close()
        self._conversations.clear()

    # -- one life: a request, a wait, a lease ----------------------------------------------------------

    async def _live(self, request: GpuRequest, patience_s: float) -> None:
        try:
            got = await self._ask(request, clock() + patience_s)
            if got is not None:
                await self._keep(*got)
        finally:
            self._hang_up()
            self.holding, self.waits = None, False

    async def _ask(self, request: GpuRequest, until: float) -> tuple[Conversation, Holding] | None:
        wanted: Message = Acquire(request, label=self.name, host=self.name)
        while clock() < until:
            try:
                conversation = await self._connect()
            except LOST:
                await asyncio.sleep(self._times.heartbeat_s / 10)
                continue
            try:
                conversation.say(wanted)
                answer: Message | None = await conversation.hear(self._times.answer_s)
                if isinstance(answer, Waiting):
                    self.waits = True
                    wanted = Resume(answer.entry, answer.secret)
                    answer = await self._wait(conversation, until)
                if isinstance(answer, Granted):
                    return conversation, self._hold(answer)
                if isinstance(answer, Refused) and answer.code in refusal_codes.ENDS_THE_CONNECTION:
                    raise EOFError
                return None  # refused, or given up
            except LOST:
                if isinstance(wanted, Acquire):
                    return None  # perhaps granted, and nobody knows: the service has to find out
                self._forget(conversation)
        return None

    async def _wait(self, conversation: Conversation, until: float) -> Message | None:
        """What ends the wait; meanwhile the service hears that somebody waits."""
        unanswered, next_word = False, clock()
        while True:
            if clock() >= until or self._give_back.is_set():
                conversation.say(Cancel())
                answer = await conversation.hear(self._times.answer_s)
                if isinstance(answer, Granted):
                    conversation.say(Release(answer.entry.entry_id, answer.secret))
                return None
            if clock() >= next_word:
                if unanswered:
                    raise EOFError
                conversation.say(Alive())
                unanswered, next_word = True, clock() + self._times.heartbeat_s
            with contextlib.suppress(asyncio.TimeoutError):
                answer = await conversation.hear(max(0.001, next_word - clock()))
                unanswered = unanswered and not isinstance(answer, Alive)
                if not isinstance(answer, (Alive, Waiting)):
                    return answer

    def _hold(self, granted: Granted) -> Holding:
        self.waits = False
        reach = Reach(self._times.closed_s, self._times.silent_s, clock())
        self.holding = Holding(granted, reach, self.name)
        self._book.enter(self.holding)
        return self.holding

    async def _keep(self, conversation: Conversation | None, holding: Holding) -> None:
        """Until it is given back, over by the rule, or over by the service's word; then say so."""
        keeping = _Keeping(conversation)
        wants_end = asyncio.create_task(self._give_back.wait())
        try:
            while not (holding.over or wants_end.done()) and clock() < holding.reach.ends_at:
                self._speak(keeping, holding)
                await keeping.something_happens(wants_end, holding.reach.ends_at)
                self._hear(keeping, holding)
        finally:
            wants_end.cancel()
            await keeping.stop()
        if not (holding.over or wants_end.done()):
            await asyncio.sleep(max(0.0, holding.reach.killed_at - clock()))  # a program that does not hurry
        holding.over = True
        await self._release(keeping.conversation, holding)

    def _speak(self, keeping: _Keeping, holding: Holding) -> None:
        """Say what is due, and dial while there is no answer."""
        now, beat = clock(), self._times.heartbeat_s
        if keeping.said_at is not None and now >= keeping.said_at + beat:
            keeping.out = True
        if keeping.conversation is not None and keeping.said_at is None and now >= keeping.next_word:
            keeping.said_at, keeping.next_word = now, now + beat
            with contextlib.suppress(EOFError):
                keeping.conversation.say(Alive())
        if keeping.out and keeping.dialing is None and now >= keeping.next_dial:
            keeping.dialing = asyncio.create_task(self._come_back(holding))
        due = [keeping.next_word]
        if keeping.said_at is not None and not keeping.out:
            due.append(keeping.said_at + beat)
        if keeping.out and keeping.dialing is None:
            due.append(keeping.next_dial)
        keeping.wake_at = min(each for each in (*due, now + beat) if each > now)

    def _hear(self, keeping: _Keeping, holding: Holding) -> None:
        reach = holding.reach
        if keeping.dialing is not None and keeping.dialing.done():
            dialed, keeping.dialing = keeping.dialing.result(), None
            keeping.next_dial = clock() + self._times.heartbeat_s / 10
            if dialed is not None:
                if keeping.conversation is not None:
                    self._forget(keeping.conversation)
                keeping.moves_to(dialed)
                return
        if keeping.hearing is None or not keeping.hearing.done():
            return
        hearing, keeping.hearing = keeping.hearing, None
        try:
            answer = hearing.result()
        except LOST:
            if keeping.is_refused and keeping.conversation is not None:
                reach.hung_up()
                keeping.conversation.close()
            self._leave(keeping)
            return
        if isinstance(answer, Alive) and keeping.said_at is not None:
            reach.answered(keeping.said_at)
            keeping.said_at, keeping.out = None, False
        elif isinstance(answer, Refused):
            if answer.code == refusal_codes.SERVICE_ENDS:
                self._leave(keeping)
            elif answer.code in (refusal_codes.ENDED, refusal_codes.LEASE_OVER):
                self._is_over(holding, answer)
            else:
                keeping.is_refused = answer.code != refusal_codes.REPLACED

    def _leave(self, keeping: _Keeping) -> None:
        """The connection is of no use any more."""
        if keeping.conversation is not None:
            self._forget(keeping.conversation)
        keeping.moves_to(None)

    def _is_over(self, holding: Holding, refused: Refused) -> None:
        self._book.said_over(holding, f"{refused.code}: {refused.message}")
        holding.over = True

    async def _come_back(self, holding: Holding) -> Conversation | None:
        try:
            conversation = await self._connect()
        except LOST:
            return None
        sent_at = clock()
        try:
            conversation.say(Resume(holding.entry_id, holding.secret))
            answer = await conversation.hear(self._times.answer_s)
        except LOST:
            self._forget(conversation)
            return None
        if isinstance(answer, Granted):
            holding.reach.answered(sent_at)
            return conversation
        if isinstance(answer, Refused) and answer.code == refusal_codes.LEASE_OVER:
            self._is_over(holding, answer)
        self._forget(conversation)
        return None

    async def _release(self, conversation: Conversation | None, holding: Holding) -> None:
        """Say that it is over, as long as the service may not know it by itself."""
        until = holding.reach.killed_at
        while True:
            try:
                if conversation is None:
                    conversation = await self._connect()
                conversation.say(Release(holding.entry_id, holding.secret))
                while True:
                    answer = await conversation.hear(self._times.answer_s)
                    if isinstance(answer, (Released, Refused)):
                        return
            except LOST:
                if conversation is not None:
                    self._forget(conversation)
                conversation = None
            if clock() >= until:
                return
            await asyncio.sleep(self._times.heartbeat_s / 10)
