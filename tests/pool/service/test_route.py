"""Whether a connection is the client's own is seen by the segment size that the other end announced."""

from __future__ import annotations

import socket

import pytest

from bitfusion_pool.messages.from_client import SEGMENTS
from bitfusion_pool.messages.from_service import DIRECT, INDIRECT
from bitfusion_pool.service.connections.route import announced_segment, route
from tests.pool.network.cutting_proxy import CuttingProxy


@pytest.mark.parametrize(
    ("announced", "told", "expected"),
    [
        (744, 744, DIRECT),
        (999, 999, DIRECT),
        (744, 745, INDIRECT),
        (1460, 744, INDIRECT),  # a proxy's own
        (744, 0, INDIRECT),  # a client that does not tell
        (0, 0, INDIRECT),
        (1460, 1460, INDIRECT),  # what everybody announces proves nothing
    ],
)
def test_it_is_direct_if_both_say_the_same(announced: int, told: int, expected: str) -> None:
    assert route(announced, told) == expected


def connect(segment: int, port: int, family: int, host: str) -> socket.socket:
    client = socket.socket(family)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
    client.connect((host, port))
    return client


@pytest.mark.parametrize("segment", [SEGMENTS[0], 850, SEGMENTS[-1]])
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_tells_what_the_other_end_has_announced(family: int, host: str, segment: int) -> None:
    """If this fails on some kernel, a client that is killed there costs `silent_s` instead of `closed_s`."""
    with (
        socket.create_server((host, 0), family=family) as listener,
        connect(segment, listener.getsockname()[1], family, host),
        listener.accept()[0] as accepted,
    ):
        assert announced_segment(accepted) == segment


@pytest.mark.parametrize("as_router", [True, False])
def test_a_router_leaves_it_and_a_proxy_announces_its_own(as_router: bool) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        CuttingProxy(listener.getsockname()[1], as_router) as network,
        connect(900, network.port, socket.AF_INET, "127.0.0.1"),
        listener.accept()[0] as accepted,
    ):
        assert (announced_segment(accepted) == 900) is as_router


def test_what_is_no_tcp_announces_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert announced_segment(ours) == 0
