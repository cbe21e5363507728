"""When leases over the network end, by a clock of the test's own."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import REMOTE, WAITING, Entry, Holder
from bitfusion_pool.ledger.files.lease_lock import LeaseLock
from bitfusion_pool.service.leases import remote_leases
from bitfusion_pool.service.leases.operations import PoolOperations
from bitfusion_pool.service.leases.remote_leases import LeaseOwner, QueuedRequest, RemoteLeases, replaced
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import Refusal

CLOSED_S, SILENT_S = 15.0, 120.0
LEASE = "lease"


class Clock:
    """The time, as `liveness.clock`."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Pool(PoolOperations):
    """Notes what is ended; `is_full`: nothing can be."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.is_full = False

    def leave(self, entry_id: str) -> None:
        if self.is_full:
            raise PoolUnreadable("", "no room")
        self.ended.append(entry_id)


@dataclass
class Client:
    """A session."""

    clock: Clock
    request: QueuedRequest | None = None
    told: list[str] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.heard_at = self.clock()
        self.owner: LeaseOwner = self

    def speak(self) -> None:
        self.heard_at = self.clock()

    def hand_over(self, entry_id: str) -> QueuedRequest | None:
        request, self.request = self.request, None
        return request

    def refuse(self, refusal: Refusal) -> None:
        self.told.append(refusal.message)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(remote_leases, "clock", clock)
    return clock


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def leases(clock: Clock, pool: Pool) -> RemoteLeases:
    return RemoteLeases(pool, CLOSED_S, SILENT_S, Metrics())


def after(clock: Clock, leases: RemoteLeases, seconds: float) -> None:
    clock.now += seconds
    leases.look()


def waiting_request() -> QueuedRequest:
    entry = Entry(1, LEASE, WAITING, REMOTE, GpuRequest(), Holder("x", "ada"), (), 0.0, None, None)
    return QueuedRequest(entry, LeaseLock.none(LEASE))


def test_a_closed_connection_ends_a_lease_after_closed_s(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    leases.serve(LEASE, Client(clock))
    clock.now += 3
    leases.left(LEASE, by_client=True)
    after(clock, leases, CLOSED_S - 0.1)
    assert pool.ended == []
    after(clock, leases, 0.1)
    assert pool.ended == [LEASE]
    assert not leases.knows(LEASE)


def test_silence_ends_it_after_silent_s_and_every_word_counts(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    client = Client(clock)
    leases.serve(LEASE, client)
    for _ in range(5):
        after(clock, leases, SILENT_S - 1)
        client.speak()
    after(clock, leases, SILENT_S - 0.1)
    assert (pool.ended, client.told) == ([], [])
    after(clock, leases, 0.1)
    assert pool.ended == [LEASE]
    (said,) = client.told
    assert said.endswith(f"{LEASE} has ended: nothing was heard from you for 120 seconds")


def test_who_was_silent_long_before_the_connection_closed_has_no_more_than_silent_s(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    leases.serve(LEASE, Client(clock))
    clock.now += SILENT_S - 5
    leases.left(LEASE, by_client=True)
    after(clock, leases, 5)
    assert pool.ended == [LEASE]


def test_who_comes_back_in_time_keeps_the_lease(clock: Clock, leases: RemoteLeases, pool: Pool) -> None:
    for _ in range(20):
        client = Client(clock)
        leases.serve(LEASE, client)
        leases.left(LEASE, by_client=True)
        after(clock, leases, CLOSED_S - 0.1)
    assert pool.ended == []


def test_what_a_service_finds_when_it_starts_has_the_whole_of_silent_s(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    leases.found(LEASE, None)
    after(clock, leases, SILENT_S - 0.1)
    assert pool.ended == []
    after(clock, leases, 0.1)
    assert pool.ended == [LEASE]


def test_another_connection_takes_over_and_the_first_ones_end_means_nothing(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    first, second = Client(clock, waiting_request()), Client(clock)
    leases.serve(LEASE, first)
    waited = first.request
    assert leases.serve(LEASE, second) is waited
    assert (first.told, second.told) == ([replaced(LEASE).message], [])
    assert leases.serve(LEASE, second) is None
    assert second.told == []


def test_a_request_that_waits_without_a_connection_is_kept_and_handed_to_who_comes_back(
    clock: Clock, leases: RemoteLeases
) -> None:
    request = waiting_request()
    leases.serve(LEASE, Client(clock))
    leases.left(LEASE, True, request)
    assert leases.serve(LEASE, Client(clock)) is request


def test_a_client_whose_connection_we_ended_may_not_know_so_silence_counts(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    leases.serve(LEASE, Client(clock))
    clock.now += 3
    leases.left(LEASE, by_client=False)
    after(clock, leases, SILENT_S - 3.1)
    assert pool.ended == []
    after(clock, leases, 0.1)
    assert pool.ended == [LEASE]


def test_once_it_is_seen_to_know_closed_s_counts(clock: Clock, leases: RemoteLeases, pool: Pool) -> None:
    client = Client(clock)
    leases.serve(LEASE, client)
    leases.left(LEASE, by_client=False)
    clock.now += 1
    leases.gone(client)
    after(clock, leases, CLOSED_S - 0.1)
    assert pool.ended == []
    after(clock, leases, 0.1)
    assert pool.ended == [LEASE]


def test_that_an_earlier_connection_has_gone_says_nothing_of_a_later_one(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    first, second = Client(clock), Client(clock)
    for client in (first, second):
        leases.serve(LEASE, client)
        leases.left(LEASE, by_client=False)
    leases.gone(first)
    after(clock, leases, SILENT_S - 0.1)
    assert pool.ended == []


def test_what_somebody_ended_is_over_silent_s_later_however_often_its_client_speaks(
    clock: Clock, leases: RemoteLeases, pool: Pool
) -> None:
    client = Client(clock)
    leases.serve(LEASE, client)
    assert leases.end(LEASE)
    assert leases.has_been_ended(LEASE)
    clock.now += SILENT_S - 0.1
    client.speak()
    assert leases.end(LEASE)  # a second time gives it no more time
    after(clock, leases, 0)
    assert pool.ended == []
    after(clock, leases, 0.1)
    assert (pool.ended, client.told) == ([LEASE], [])
    assert not leases.end("another")


def test_what_is_lost_is_counted_by_its_reason(clock: Clock, pool: Pool) -> None:
    registry = CollectorRegistry()
    leases = RemoteLeases(pool, CLOSED_S, SILENT_S, Metrics(registry))
    leases.found("found", None)
    for name in ("left", "ended"):
        leases.serve(name, Client(clock))
    leases.left("left", by_client=True)
    leases.end("ended")
    after(clock, leases, SILENT_S)
    for reason in ("closed", "silent", "ended"):
        assert registry.get_sample_value("bitfusion_pool_remote_lost_total", {"reason": reason}) == 1


def test_a_ledger_that_cannot_be_written_is_told_once_and_tried_again(
    clock: Clock, leases: RemoteLeases, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    leases.found(LEASE, None)
    pool.is_full = True
    for _ in range(3):
        after(clock, leases, SILENT_S)
    assert [record.message for record in caplog.records] == ["lease cannot be ended"]
    pool.is_full = False
    leases.look()
    assert pool.ended == [LEASE]
    assert caplog.records[-1].message == "remote lease lost"


@given(said_s=st.floats(0, 200), open_s=st.floats(0, 200), closes=st.sampled_from(("nobody", "cut", "we")))
def test_a_client_that_keeps_the_rule_has_ended_before_its_share_is_free(
    said_s: float, open_s: float, closes: str
) -> None:
    """The rule: three quarters of silent_s after the service's last word, or 0.8 of closed_s once it is cut.

    The service says something `said_s` after the client's last word, if it says anything then, and the
    connection is cut for both `open_s` later, or we end it, of which the client does not hear.
    """
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote_leases, "clock", clock)
        pool = Pool()
        leases = RemoteLeases(pool, CLOSED_S, SILENT_S, Metrics())
        leases.serve(LEASE, Client(clock))
        if said_s <= leases.heard_s:
            clock.now += said_s
        heard = clock.now
        ends_at = heard + 0.75 * SILENT_S
        if closes != "nobody" and heard + open_s < ends_at:
            clock.now += open_s
            leases.left(LEASE, by_client=closes == "cut")
            if closes == "cut":
                ends_at = min(ends_at, max(clock.now, heard + 0.8 * CLOSED_S))
        after(clock, leases, ends_at - clock.now)
        assert pool.ended == []
