"""Filters: which servers and GPUs a request accepts."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.placement import candidates
from tests.pool.inventory.two_servers import SERVERS, A, B


@pytest.mark.parametrize(
    ("request_", "servers"),
    [
        (GpuRequest(1), {A, B}),
        (GpuRequest(3), {B}),
        (GpuRequest(5), set()),
        (GpuRequest(1, memory_mib=16000), {A}),
        (GpuRequest(1, memory_mib=16161), set()),
        (GpuRequest(1, partial=0.00001), set()),
        (GpuRequest(1, servers=("10.0.0.2:56001",)), {B}),
        (GpuRequest(1, servers=("10.0.0.2",)), {B}),
        (GpuRequest(1, servers=("first", "second")), {A, B}),
        (GpuRequest(1, servers=("10.0.0.2:1",)), set()),
        (GpuRequest(1, filters=(("server.addr", "10.0.0.1"),)), {A}),
        (GpuRequest(1, filters=(("server.addr", "10.0.0.1"), ("server.addr", "10.0.0.2"))), {A, B}),
        (GpuRequest(1, filters=(("server.addr", "10.0.0.1"), ("device.name", "t4"))), set()),
        (GpuRequest(1, filters=(("server.hostname", "bf-two"),)), {B}),
        (GpuRequest(1, filters=(("server.has-rdma", "true"),)), {A}),
        (GpuRequest(1, filters=(("server.has-rdma", "False"),)), {B}),
        (GpuRequest(1, filters=(("server.cuda-version", "10.2"),)), {B}),
        (GpuRequest(1, filters=(("server.driver-version", "450.1"),)), {B}),
        (GpuRequest(1, filters=(("server.dirver-version", "450.1"),)), {B}),
        (GpuRequest(1, filters=(("device.id", "3"),)), {B}),
        (GpuRequest(2, filters=(("device.id", "3"),)), set()),
        (GpuRequest(2, filters=(("device.id", "3"), ("device.id", "2"))), {B}),
        (GpuRequest(1, filters=(("device.name", "Tesla"),)), {A, B}),
        (GpuRequest(1, filters=(("device.phy-memory", "15109"),)), {B}),
    ],
)
def test_a_server_is_a_candidate_if_it_alone_could_serve_the_request(
    request_: GpuRequest, servers: set[str]
) -> None:
    assert set(candidates(request_, SERVERS)) == servers


def test_an_unknown_filter_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest) as caught:
        candidates(GpuRequest(1, filters=(("device.colour", "red"),)), SERVERS)
    assert str(caught.value) == (
        'invalid value "device.colour" for --filter: must have one of the keys server.addr, server.hostname, '
        "server.has-rdma, server.cuda-version, server.driver-version, server.dirver-version, device.id, "
        "device.name, device.phy-memory"
    )
