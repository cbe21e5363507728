"""Clients on other machines use a pool at random, over networks and beside a service that break at random.

Half of the clients are behind a network of routers, half behind a proxy that makes connections of its own.
There are never two holders of one share, and what was given back is free in the end. Who holds what is what
the clients themselves believe, by their rule for a pool that is out of reach, apart from what the service
says. Times are compressed; the seed is printed, and the variable `SEED` repeats a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.tls import client_context
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.messages import refusal_codes
from tests.pool.network.cutting_proxy import CuttingProxy, Side
from tests.pool.network.simulated_client import LOST, Book, Holding, SimulatedClient, Times, clock
from tests.pool.service.tls_client import NetworkService
from tests.support.rounds import rounds
from tests.support.waiting import wait_until

POOL = """
[[servers]]
name = "a"
address = "10.0.0.1"
[[servers.devices]]
count = 5
[[servers]]
name = "b"
address = "10.0.0.2"
[[servers.devices]]
count = 2
memory_mib = 8000
[[servers.devices]]
count = 1
"""
SIZES = (0.1, 0.25, 0.3, 0.5, 0.7, 1.0)
CLIENTS = 20
NAMES = tuple(f"pod-{number}" for number in range(8))
WEIGHTS = {
    "acquire": 90,
    "give_back": 90,
    "leave": 3,
    "hold": 3,
    "hold_one_way": 1,
    "strand": 1,
    "reset": 3,
    "half_open_at_client": 1,
    "half_open_at_service": 1,
    "half_open_and_cut": 1,
    "ended_at_service": 3,
    "ended_at_client": 1,
    "refuse": 2,
    "delay": 3,
    "kill_client": 1,
    "steal": 1,
    "revoke": 0.5,
}
SERVICE_ENDS = 12
TICK_S = 0.05


class Trial:
    """The world of one run: a service, clients, and a network for each."""

    def __init__(self, base: Path, seed: int, stack: ExitStack, times: Times) -> None:
        self.times = times
        self.chance = random.Random(seed)
        options = [f"--{name.replace('_', '-')}={value:g}" for name, value in vars(self.times).items()]
        self.service = NetworkService(base, "--waiting-per-user=0", *options[:3])
        stack.callback(self.service.end)
        self.service.configure(POOL)
        self.service.start()
        self.book = Book(self._total(), self.times)
        self.proxies = [
            stack.enter_context(CuttingProxy(self.service.port, as_router=number % 2 == 0))
            for number in range(CLIENTS)
        ]
        context = client_context(Path(self.service.authority).read_text())
        tokens = {name: self.service.token(name) for name in NAMES}
        self.clients = [
            SimulatedClient(name, proxy.port, context, tokens[name], self.times, self.book)
            for proxy, name in zip(self.proxies, itertools.cycle(NAMES))
        ]
        self.done: Counter[str] = Counter()
        self.last: deque[str] = deque(maxlen=40)
        self.stolen: list[str] = []
        self._faulty_until = [0.0] * CLIENTS
        self._tasks: set[asyncio.Task[None]] = set()

    def _total(self) -> dict[tuple[str, int], int]:
        with Ledger({**os.environ, "BITFUSION_POOL_DIR": str(self.service.folder)}) as ledger:
            return {
                (server.key, device.number): device.memory_mib
                for server in ledger.servers
                for device in server.devices
            }

    # -- the run ---------------------------------------------------------------------------------------

    async def run(self, operations: int) -> None:
        """So many operations, evenly among them ends of the service; then everybody gives back."""
        watch = asyncio.create_task(self._watch_lag())
        each = max(150, operations // SERVICE_ENDS)
        restarting: asyncio.Task[None] | None = None
        next_end = each // 2
        while self.done.total() < operations:
            if self.done.total() >= next_end:
                next_end += each
                restarting = asyncio.create_task(self._restart(restarting))
            self._step()
            await asyncio.sleep(self.chance.uniform(0.0, 0.006))
        if restarting is not None:
            await restarting
        self._heal()
        await asyncio.gather(*(client.end() for client in self.clients))
        watch.cancel()

    async def _watch_lag(self) -> None:
        lags: deque[float] = deque(maxlen=int(self.times.closed_s / TICK_S))
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_S)
            lags.append(time.monotonic() - before - TICK_S)
            self.book.lag_s = max(lags)

    async def _restart(self, before: asyncio.Task[None] | None) -> None:
        """The service ends, in order or not, and is started anew; meanwhile everything goes on."""
        if before is not None:
            await before
        number = self.chance.choice((signal.SIGTERM, signal.SIGKILL))
        self._note(f"service {signal.Signals(number).name}")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self.service.end, number)
        await loop.run_in_executor(None, self.service.start)

    def _step(self) -> None:
        """One operation of one client, or of its network, if it can be done just now."""
        name = self.chance.choices(tuple(WEIGHTS), tuple(WEIGHTS.values()))[0]
        number = self.chance.randrange(CLIENTS)
        if getattr(self, name)(number):
            self._note(name, number)

    def _note(self, name: str, number: int | None = None) -> None:
        self.done[name] += 1
        self.last.append(name if number is None else f"{name} {number}")

    # -- operations: each returns whether it could be done ---------------------------------------------

    def acquire(self, number: int) -> bool:
        client = self.clients[number]
        if not client.idle:
            return False
        request = GpuRequest(self.chance.choice((1, 1, 1, 2)), self.chance.choice(SIZES))
        client.acquire(request, self.chance.choice((0.2, 1.0, 3.0)) * self.times.closed_s)
        return True

    def give_back(self, number: int) -> bool:
        """Most programs are short, and some outlast every fault."""
        client = self.clients[number]
        holding = client.holding
        if holding is None or holding.over:
            return False
        if holding.planned_until is None:
            longest = self.chance.choices((0.1, 1.0, 2.5), (60, 20, 20))[0] * self.times.closed_s
            holding.planned_until = clock() + self.chance.uniform(0, longest)
        if clock() < holding.planned_until:
            return False
        client.give_back()
        return True

    def leave(self, number: int) -> bool:
        """Be it while it connects, waits, or is granted."""
        client = self.clients[number]
        if client.idle or client.holding is not None:
            return False
        client.give_back()
        return True

    def kill_client(self, number: int) -> bool:
        client = self.clients[number]
        if client.idle:
            return False
        self._beside(client.kill())
        return True

    def steal(self, number: int) -> bool:
        """Another's lease, with its secret, under one's own token."""
        thief, victims = self.clients[number], [each for each in self.clients if each.holding is not None]
        victim = self.chance.choice(victims) if victims else thief
        if victim.holding is None or victim.name == thief.name:
            return False
        self._beside(self._steal(thief, victim.holding))
        return True

    async def _steal(self, thief: SimulatedClient, holding: Holding) -> None:
        with contextlib.suppress(*LOST):
            answer = await thief.steal(holding)
            if answer not in (refusal_codes.LEASE_OVER, refusal_codes.SERVICE_ENDS):
                self.stolen.append(f"{thief.name} {holding.entry_id}: {answer}")

    def revoke(self, number: int) -> bool:
        """A name's token is revoked, and its clients have a new one at once."""
        name = self.clients[number].name
        self.service.revoke(name)
        token = self.service.token(name)
        for client in self.clients:
            if client.name == name:
                client.token = token
        return True

    def hold(self, number: int) -> bool:
        return self._for_a_while(number, lambda proxy: proxy.hold(), CuttingProxy.flow)

    def hold_one_way(self, number: int) -> bool:
        side = self.chance.choice(tuple(Side))
        return self._for_a_while(number, lambda proxy: proxy.hold(side), CuttingProxy.flow)

    def refuse(self, number: int) -> bool:
        """Nobody answers at the service's address, as when its machine is started anew."""

        def begin(proxy: CuttingProxy) -> None:
            proxy.refuse()
            proxy.reset()

        return self._for_a_while(number, begin, CuttingProxy.accept)

    def delay(self, number: int) -> bool:
        seconds = self.chance.uniform(0.01, 0.1) * self.times.closed_s
        return self._for_a_while(number, lambda proxy: proxy.delay(seconds), lambda proxy: proxy.delay(0.0))

    def strand(self, number: int) -> bool:
        self.proxies[number].strand()
        return True

    def reset(self, number: int) -> bool:
        self.proxies[number].reset()
        return True

    def half_open_at_client(self, number: int) -> bool:
        self.proxies[number].drop(told=Side.CLIENT)
        return True

    def half_open_at_service(self, number: int) -> bool:
        self.proxies[number].drop(told=Side.SERVICE)
        return True

    def ended_at_service(self, number: int) -> bool:
        """As a proxy does that loses sight of the client, of whom nothing comes through then."""
        if self.proxies[number].as_router:
            return False

        def begin(proxy: CuttingProxy) -> None:
            proxy.end(told=Side.SERVICE)
            proxy.hold()

        return self._to_a_holder(number, begin)

    def ended_at_client(self, number: int) -> bool:
        """A proxy says that the service has ended the connection, and keeps it open there."""
        if self.proxies[number].as_router:
            return False
        self.proxies[number].end(told=Side.CLIENT)
        return True

    def half_open_and_cut(self, number: int) -> bool:
        """The service alone is told, and then nothing comes through."""

        def begin(proxy: CuttingProxy) -> None:
            proxy.drop(told=Side.SERVICE)
            proxy.hold()

        return self._to_a_holder(number, begin)

    # -- inside ----------------------------------------------------------------------------------------

    def _to_a_holder(self, number: int, begin: Callable[[CuttingProxy], None]) -> bool:
        """A fault of the network of a client whose program outlasts it, and mostly `closed_s`."""
        holding = self.clients[number].holding
        if holding is None or not self._for_a_while(number, begin, CuttingProxy.flow, (20, 40, 40)):
            return False
        holding.planned_until = clock() + 2 * self.times.silent_s
        return True

    def _for_a_while(
        self,
        number: int,
        begin: Callable[[CuttingProxy], None],
        end: Callable[[CuttingProxy], None],
        odds: tuple[int, int, int] = (60, 25, 15),
    ) -> bool:
        """A fault of one client's network that heals, mostly before its lease would be over.

        `odds`: of a short time, one a little longer than `closed_s`, one longer than `silent_s`.
        """
        if clock() < self._faulty_until[number]:
            return False
        proxy, times = self.proxies[number], self.times
        shortly, long = times.closed_s * self.chance.uniform(0.1, 1.0), times.silent_s * 1.3
        seconds = self.chance.choices((shortly, 1.5 * times.closed_s, long), odds)[0]
        self._faulty_until[number] = clock() + seconds + times.heartbeat_s
        begin(proxy)
        asyncio.get_running_loop().call_later(seconds, end, proxy)
        return True

    def _beside(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _heal(self) -> None:
        for proxy in self.proxies:
            proxy.flow()
            proxy.accept()
            proxy.delay(0.0)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("operations", "times"),
    [
        (300, Times(closed_s=2.0, silent_s=6.0, heartbeat_s=0.4)),
        (rounds(1_000, 10_000), Times(closed_s=2.0, silent_s=6.0, heartbeat_s=0.4)),
        (rounds(600, 3_000), Times(closed_s=3.0, silent_s=3.0, heartbeat_s=0.4)),
    ],
)
def test_never_two_holders_and_nothing_is_kept_for_ever(base: Path, operations: int, times: Times) -> None:
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"SEED={seed}")
    with ExitStack() as stack:
        trial = Trial(base, seed, stack, times)
        asyncio.run(trial.run(operations))
        limit_s = trial.times.silent_s + trial.times.closed_s
        wait_until(lambda: trial.service.entries() == [], trial.service.entries, limit_s + 5)
    book = trial.book
    print(f"{dict(trial.done)}; {book.grants} grants, {book.inconclusive} inconclusive")
    assert book.twice == [], trial.last
    assert book.kept_too_short == [], trial.last
    assert trial.stolen == []
    assert book.grants
