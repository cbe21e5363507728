"""A program that holds a GPU of a pool elsewhere outlives outages, or ends before its GPU is another's.

The long test has the times of a service as it is installed, and prints when each program ended and each GPU
was free; the short ones shorten only what they do not wait for.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bitfusion_client.command.client_lines import BackInReach, OutOfReach, PoolLost
from tests.pool.network.cutting_proxy import CuttingProxy, Side
from tests.pool.network.far_user import LIMIT_S, NOTHING, PROXY, ROUTERS, FarUser
from tests.pool.service.tls_client import NetworkService
from tests.support.machine import scaled
from tests.support.processes import wait_until_gone
from tests.support.waiting import wait_until

POOL = """
[[servers]]
name = "a"
address = "10.0.0.1"
[[servers.devices]]
count = 24
"""
STAMPS = """
import os, sys, time
print(os.getpid(), flush=True)
while True:
    with open(sys.argv[1], "a") as file:
        file.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
    time.sleep(0.02)
"""
"""A program that uses its GPU: it writes the time again and again."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def served(base: Path, stack: ExitStack, *options: str) -> NetworkService:
    service = NetworkService(base, *options)
    service.configure(POOL)
    stack.callback(service.end)
    service.start()
    return service


def user_of(service: NetworkService, base: Path, stack: ExitStack, name: str, way: str = ROUTERS) -> FarUser:
    return stack.enter_context(FarUser(service, base / f"home-{name}", name, way))


# -- what it survives --------------------------------------------------------------------------------


def cut_for_a_moment(proxy: CuttingProxy) -> None:
    proxy.hold()
    time.sleep(2.0)  # longer than a heartbeat and its answer
    proxy.flow()


FAULTS: dict[str, Callable[[CuttingProxy], None]] = {
    "cut": cut_for_a_moment,
    "reset": CuttingProxy.reset,
    "stranded": CuttingProxy.strand,
    "half-open at the client": lambda proxy: proxy.drop(told=Side.CLIENT),
    "half-open at the service": lambda proxy: proxy.drop(told=Side.SERVICE),
    "a proxy ends it at the client": lambda proxy: proxy.end(told=Side.CLIENT),
    "a proxy ends it at the service": lambda proxy: proxy.end(told=Side.SERVICE),
}


def way_of(fault: str) -> str:
    return PROXY if "proxy" in fault else ROUTERS


def wait_for_connections(user: FarUser, count: int, after: str) -> None:
    wait_until(lambda: user.proxy.accepted >= count, f"{after}: it comes back", 10.0)


def test_a_program_goes_on_and_gives_back_in_order_after(base: Path, stack: ExitStack) -> None:
    """All faults at once, each in a network of its own."""
    service = served(base, stack, "--heartbeat-s", "0.5")
    users = {
        name: user_of(service, base, stack, f"u{number}", way_of(name)) for number, name in enumerate(FAULTS)
    }
    for user in users.values():
        user.run()
    leases = {entry.entry_id for entry in service.until_entries(len(FAULTS))}
    for name, user in users.items():
        FAULTS[name](user.proxy)
    for name, user in users.items():
        if name != "cut":
            wait_for_connections(user, 2, name)
    assert {entry.entry_id for entry in service.entries()} == leases
    keepers = [user.keeper for user in users.values()]
    for name, user in users.items():
        assert user.runs, name
        assert user.finish() == 128 + signal.SIGKILL, user.lines
        assert not user.said(PoolLost), name
    service.until_entries(0)
    wait_until_gone(*keepers, limit_s=LIMIT_S)  # they hear of it over the proxies, which end with the test


def test_a_service_that_is_started_anew_loses_no_lease(base: Path, stack: ExitStack) -> None:
    service = served(base, stack, "--heartbeat-s", "0.5")
    user = user_of(service, base, stack, "ada")
    user.run()
    before = service.until_entries(1)
    for number in (signal.SIGTERM, signal.SIGKILL):
        connections = user.proxy.accepted
        service.end(number)
        service.start()
        wait_for_connections(user, connections + 1, signal.Signals(number).name)
    assert [entry.entry_id for entry in service.entries()] == [entry.entry_id for entry in before]
    assert user.runs
    keeper = user.keeper
    user.finish()
    service.until_entries(0)
    wait_until_gone(keeper, limit_s=LIMIT_S)  # it hears of it over the proxy, which ends with the test


# -- what it does not survive ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        "reset and refused",
        pytest.param("ended by a proxy for the service alone and cut", marks=pytest.mark.long),
        pytest.param("reset for the service alone and cut", marks=pytest.mark.long),
        pytest.param("cut", marks=pytest.mark.long),
        pytest.param("revoked", marks=pytest.mark.long),
        pytest.param("cut and revoked", marks=pytest.mark.long),
    ],
)
def test_a_program_has_ended_before_its_gpu_is_anothers(base: Path, stack: ExitStack, fault: str) -> None:
    times = {"closed": 2.0, "silent": 8.0, "heartbeat": 0.5}
    options = [f"--{name}-s={scaled(seconds):g}" for name, seconds in times.items()]
    service = served(base, stack, *options)
    service.end()
    service.configure(POOL.replace("24", "1"))
    service.start()
    first, second = (user_of(service, base, stack, name, way_of(fault)) for name in ("ada", "bob"))
    stamps = {user: base / user.name for user in (first, second)}
    first.run(sys.executable, "-c", STAMPS, str(stamps[first]))
    service.until_entries(1)
    if "cut" in fault:
        first.proxy.hold()
    if "ended" in fault:
        first.proxy.end(told=Side.SERVICE)
    elif "alone" in fault:
        first.proxy.drop(told=Side.SERVICE)
    if "revoked" in fault:
        service.revoke("ada")
    if "refused" in fault:
        first.proxy.refuse()
        first.proxy.reset()
    second.run(sys.executable, "-c", STAMPS, str(stamps[second]))
    wait_until(lambda: stamps[second].exists() and "\n" in stamps[second].read_text(), "the second program")
    assert first.ended() != 0  # by now at the latest, and perhaps only then
    last = float(stamps[first].read_text().splitlines()[-1])
    begin = float(stamps[second].read_text().splitlines()[0])
    assert last < begin
    (lost,) = first.said(PoolLost)
    (away, *_) = first.said(OutOfReach)
    place = first.proxy.address
    assert isinstance(lost, PoolLost)
    assert isinstance(away, OutOfReach)
    assert (lost.pool, away.pool) == (place, place)
    assert away.ends_in_s is not None


@pytest.mark.parametrize(
    ("way", "unread", "earliest"),
    [
        (NOTHING, False, "closed"),
        (ROUTERS, False, "closed"),
        pytest.param(PROXY, False, "silent", marks=pytest.mark.long),
        pytest.param(ROUTERS, True, "silent", marks=pytest.mark.long),
    ],
)
def test_when_the_gpus_of_a_client_that_was_killed_are_free(
    base: Path, stack: ExitStack, way: str, unread: bool, earliest: str
) -> None:
    times = {"closed": 1.0, "silent": 6.0 if earliest == "silent" else 40.0, "heartbeat": 0.5}
    service = served(base, stack, *(f"--{name}-s={scaled(seconds):g}" for name, seconds in times.items()))
    user = user_of(service, base, stack, "ada", way)
    user.run()
    service.until_entries(1)
    killed_at = time.monotonic()
    user.kill(unread)
    service.until_entries(0)
    # its last word is up to a heartbeat older, and more where its keeper stood still
    assert time.monotonic() - killed_at >= scaled(times[earliest]) / 2

    def reasons() -> list[object]:
        return [line["reason"] for line in service.log if line["message"] == "remote lease lost"]

    wait_until(lambda: reasons() == [earliest], reasons)


# -- the whole table ---------------------------------------------------------------------------------


@dataclass
class Outage:
    """One row: a fault, when it heals, and within which seconds program and lease end, if they do."""

    name: str
    begin: Callable[[CuttingProxy], None] | None  # None: all of the client is killed
    heals_after_s: float
    ends: tuple[float, float] | None = None
    free: tuple[float, float] | None = None
    way: str = ROUTERS
    user: FarUser | None = None
    lease: str = ""
    seen: dict[str, float] = field(default_factory=dict)


def refused(proxy: CuttingProxy) -> None:
    proxy.refuse()
    proxy.reset()


def service_told_then_cut(proxy: CuttingProxy) -> None:
    proxy.drop(told=Side.SERVICE)
    proxy.hold()


def ended_at_service_then_cut(proxy: CuttingProxy) -> None:
    proxy.end(told=Side.SERVICE)
    proxy.hold()


# The last word before the fault is up to 5 s old: by that both may come earlier. Who stands still is late.
EARLY_S, LATE_S = scaled(1.0), scaled(3.0)
SILENT = (85.0 - EARLY_S, 102.0 + LATE_S), (115.0 - EARLY_S, 120.0 + LATE_S)
AT_ONCE, CLOSED = (0.0, LATE_S), (15.0, 15.0 + LATE_S)
TABLE = (
    Outage("cut for 5 s", CuttingProxy.hold, 5),
    Outage("cut for 60 s", CuttingProxy.hold, 60),
    Outage("cut for 150 s", CuttingProxy.hold, 150, *SILENT),
    Outage("reset", CuttingProxy.reset, 0),
    Outage("reset, then refused for 5 s", refused, 5),
    Outage("reset, then refused for 150 s", refused, 150, *SILENT),
    Outage("half-open, the client is told", lambda proxy: proxy.drop(told=Side.CLIENT), 0),
    Outage("half-open, the service is told", lambda proxy: proxy.drop(told=Side.SERVICE), 0),
    Outage("the service is told, then cut for 150 s", service_told_then_cut, 150, *SILENT),
    Outage("a proxy ends it at the client", lambda proxy: proxy.end(told=Side.CLIENT), 0, way=PROXY),
    Outage("a proxy ends it at the service", lambda proxy: proxy.end(told=Side.SERVICE), 0, way=PROXY),
    Outage(
        "the same, then cut for 150 s",
        ended_at_service_then_cut,
        150,
        *SILENT,
        way=PROXY,
    ),
    Outage("all killed, nothing in between", None, 0, AT_ONCE, CLOSED, way=NOTHING),
    Outage("all killed, behind routers", None, 0, AT_ONCE, CLOSED),
    Outage("all killed, behind a proxy", None, 0, AT_ONCE, SILENT[1], way=PROXY),
    Outage("stranded, new connections pass", CuttingProxy.strand, 0),
    Outage("the client's words are held for 60 s", lambda proxy: proxy.hold(Side.CLIENT), 60),
    Outage("the client's words are held for 150 s", lambda proxy: proxy.hold(Side.CLIENT), 150, *SILENT),
    Outage("the service's words are held for 60 s", lambda proxy: proxy.hold(Side.SERVICE), 60),
    Outage(
        "the service's words are held for 150 s",
        lambda proxy: proxy.hold(Side.SERVICE),
        150,
        ends=SILENT[0],
        free=(85.0 - EARLY_S, 104.0 + LATE_S),  # its release arrives
    ),
)


@pytest.mark.long
@pytest.mark.apart
@pytest.mark.timeout(400)
def test_every_outage_with_the_times_of_an_installed_service(base: Path, stack: ExitStack) -> None:
    service = served(base, stack)
    for number, outage in enumerate(TABLE):
        known = {entry.entry_id for entry in service.entries()}
        outage.user = user_of(service, base, stack, f"u{number}", outage.way)
        outage.user.run()
        (entry,) = (entry for entry in service.until_entries(number + 1) if entry.entry_id not in known)
        outage.lease = entry.entry_id
    began = time.monotonic()
    for outage in TABLE:
        user = outage.user
        assert user is not None
        if outage.begin is None:
            user.kill()
        else:
            outage.begin(user.proxy)
    while (now := time.monotonic() - began) < 170:
        leases = {entry.entry_id for entry in service.entries()}
        for outage in TABLE:
            user = outage.user
            assert user is not None
            if now >= outage.heals_after_s and "heals" not in outage.seen:
                outage.seen["heals"] = now
                user.proxy.flow()
                user.proxy.accept()
            if not user.runs:
                outage.seen.setdefault("ends", now)
            if outage.lease not in leases:
                outage.seen.setdefault("free", now)
        time.sleep(0.05)
    print(f"\n{'outage':<40} {'program ended':>14} {'GPU free':>9}")
    for outage in TABLE:
        cells = [f"{outage.seen[event]:.1f} s" if event in outage.seen else "–" for event in ("ends", "free")]
        print(f"{outage.name:<40} {cells[0]:>14} {cells[1]:>9}")
    for outage in TABLE:
        user = outage.user
        assert user is not None
        for event, expected in (("ends", outage.ends), ("free", outage.free)):
            at = outage.seen.get(event)
            assert (at is None) == (expected is None), f"{outage.name}: {event} at {at}"
            if at is not None and expected is not None:
                assert expected[0] <= at <= expected[1], f"{outage.name}: {event} at {at}"
        if outage.ends is None:
            assert user.runs
            user.finish()
            assert outage.heals_after_s < 60 or user.said(BackInReach), user.lines
        else:
            assert outage.seen["ends"] <= outage.seen["free"], outage.name  # seen at the same look at best
            if outage.begin is None:
                continue
            assert user.ended() != 0
            assert len(user.said(PoolLost)) == 1, user.lines
    service.until_entries(0)
