"""The limit in units: what counts, on which devices, and what is said; at a service, and as arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.sizes import units
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.token_rules import TokenLimits
from bitfusion_pool.inventory.placement import Share, candidates
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import HELD, REMOTE, WAITING, Entry, Holder
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire
from bitfusion_pool.messages.from_service import Granted, Waiting
from bitfusion_pool.service.leases.limits import (
    UserLimits,
    check_units,
    limits_of_token,
    units_of_entries,
    units_of_request,
)
from bitfusion_pool.service.refusal import Refusal
from tests.pool.service.tls_client import NetworkService, refusal

LARGE = Server("large", "10.0.0.1", 56001, (Device(0, "V100", 32000), Device(1, "V100", 32000)))
SMALL = Server("small", "10.0.0.2", 56001, (Device(0, "T4", 16000),))
POOL = (LARGE, SMALL)


def entry(request: GpuRequest, *shares: Share) -> Entry:
    state = HELD if shares else WAITING
    return Entry(1, "a", state, REMOTE, request, Holder("x", "ada"), (), 0.0, None, None, shares)


@pytest.mark.parametrize(
    ("request_", "counted"),
    [
        (GpuRequest(1), 100),
        (GpuRequest(2, 0.5), 100),
        (GpuRequest(3, 0.29), 87),
        (GpuRequest(1, 0.001), 1),
        (GpuRequest(1, memory_mib=8000), 50),  # on the small one
        (GpuRequest(2, memory_mib=8000), 50),  # only the large server has two
        (GpuRequest(1, memory_mib=8001), 51),
        (GpuRequest(1, memory_mib=16001), 51),  # larger than the small one
        (GpuRequest(1, memory_mib=8000, filters=(("server.addr", "10.0.0.1"),)), 25),
        (GpuRequest(1, memory_mib=64000), 0),  # nobody can serve it, and the ledger says so
    ],
)
def test_a_request_counts_the_most_that_it_may_take(request_: GpuRequest, counted: int) -> None:
    assert units_of_request(request_, POOL) == counted


@pytest.mark.parametrize(
    ("one", "counted"),
    [
        (entry(GpuRequest(2, 0.25)), 50),
        (entry(GpuRequest(2, 0.25), Share(LARGE.key, 0, 8000), Share(LARGE.key, 1, 8000)), 50),
        (entry(GpuRequest(1, memory_mib=8000)), 50),  # it waits, and may get the small one
        (entry(GpuRequest(1, memory_mib=8000), Share(LARGE.key, 0, 8000)), 25),
        (entry(GpuRequest(1, memory_mib=8000), Share(SMALL.key, 0, 8000)), 50),
        (entry(GpuRequest(1, memory_mib=8000), Share("10.0.0.9:1", 0, 8000)), 100),  # it has gone
        (entry(GpuRequest(1, memory_mib=20000), Share(SMALL.key, 0, 20000)), 100),  # it has shrunk
    ],
)
def test_a_lease_counts_by_the_devices_it_has(one: Entry, counted: int) -> None:
    assert units_of_entries([one], POOL) == counted
    assert units_of_entries([one, one], POOL) == 2 * counted


@given(
    st.lists(st.sampled_from([8000, 12000, 16000, 32000]), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 33000),
)
def test_whichever_device_a_request_gets_it_counts_no_more_than_was_let_in(
    sizes: list[int], gpus: int, memory_mib: int
) -> None:
    server = Server("one", "10.0.0.1", 1, tuple(Device(n, "x", size) for n, size in enumerate(sizes)))
    request = GpuRequest(gpus, memory_mib=memory_mib)
    before = units_of_request(request, (server,))
    devices = candidates(request, (server,)).get(server.key, [])
    for first in range(len(devices) - gpus + 1):
        shares = [Share(server.key, number, needed) for number, needed in devices[first : first + gpus]]
        assert units_of_entries([entry(request, *shares)], (server,)) <= before
    if len(set(sizes)) == 1 and devices:
        assert before == units(request, sizes[0])


SOMETHING = "end something of yours first; `bitfusion smi` shows who holds what"


@pytest.mark.parametrize(
    ("limit", "taken", "asked", "found", "advice"),
    [
        (
            100,
            50,
            100,
            "100 units{} 50, and this request is for 100",
            SOMETHING,
        ),
        (
            50,
            50,
            1,
            "50 units{} 50, and this request is for 1",
            SOMETHING,
        ),
        (
            *(50, 0, 100, "50 units{} 0, and this request is for 100"),
            "ask for less, GPUs times share at most 50 %, or ask the administrator who set this limit",
        ),
        (
            *(0, 0, 1, "0 units{} 0, and this request is for 1"),
            "ask the administrator who set this limit for units",
        ),
    ],
)
def test_what_is_over_the_limit_is_refused_in_words(
    limit: int, taken: int, asked: int, found: str, advice: str
) -> None:
    limits = limits_of_token(TokenLimits(units=limit), UserLimits())
    with pytest.raises(Refusal) as caught:
        check_units(limits, taken, asked)
    refused = caught.value
    assert refused.code == refusal_codes.OVER_LIMIT
    words = found.format(", 100 are one GPU, you have or wait for")
    assert refused.message == f"the name of your token may have {words}"
    assert refused.next_step == advice
    check_units(replace(limits, units=taken + asked), taken, asked)
    check_units(replace(limits, units=None), taken, asked)


@pytest.fixture
def network(base: Path) -> Iterator[NetworkService]:
    """A service with two simulated GPUs of 16160 MiB."""
    running = NetworkService(base)
    running.start()
    yield running
    running.end()


def test_leases_and_waiting_requests_of_a_name_count_together_whatever_the_shares(
    network: NetworkService,
) -> None:
    token = network.token("ada", TokenLimits(units=200))
    clients = [network.remote(token) for _ in range(5)]
    one, two, three, four, five = clients
    try:
        with network.client() as here:
            first = one.ask(Acquire(GpuRequest(2, 0.25)), Granted)
            here.acquire(GpuRequest(1, 0.75))
            two.ask(Acquire(GpuRequest(1)), Waiting)
            three.ask(Acquire(GpuRequest(1, 0.5)), Waiting)
            told = refusal(four, Acquire(GpuRequest(1, 0.01)))
            assert told.message.endswith("you have or wait for 200, and this request is for 1")
            assert told.next_step == SOMETHING
            one.release(first)  # what it says is done
            five.ask(Acquire(GpuRequest(1, 0.5)), Waiting)
    finally:
        for client in clients:
            client.close()


def test_a_request_larger_than_the_limit_is_told_what_it_may_be(network: NetworkService) -> None:
    with network.remote(network.token("ada", TokenLimits(units=50))) as client:
        told = refusal(client, Acquire(GpuRequest(2, 0.5)))
        assert told.next_step.startswith("ask for less, GPUs times share at most 50 %")
        client.release(client.ask(Acquire(GpuRequest(2, 0.25)), Granted))
        assert "is for 51" in refusal(client, Acquire(GpuRequest(1, memory_mib=8081))).message
        client.release(client.ask(Acquire(GpuRequest(1, memory_mib=8080)), Granted))
        # a request that nobody can serve is told so, not that it is over the limit
        assert refusal(client, Acquire(GpuRequest(1, memory_mib=99999))).code == refusal_codes.NEVER
