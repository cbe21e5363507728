"""Refusals: what no server can ever serve, and why."""

from __future__ import annotations

import pytest

from bitfusion_client.errors import NeverSatisfiable
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.placement import candidates
from bitfusion_pool.inventory.refusals import never_satisfiable
from bitfusion_pool.inventory.servers import Server, default_servers
from tests.pool.inventory.two_servers import FIRST, SERVERS


@pytest.mark.parametrize(
    ("request_", "servers", "problem"),
    [
        (
            GpuRequest(4),
            default_servers(),
            "4 GPUs with 16160 MiB of memory each; the largest server has 2 GPUs with 16160 MiB",
        ),
        (
            GpuRequest(5, partial=0.5),
            SERVERS,
            "5 GPUs with 7554 MiB of memory each; the largest server has 4 GPUs with 15109 MiB",
        ),
        (
            GpuRequest(1, memory_mib=99999),
            (FIRST,),
            "1 GPUs with 99999 MiB of memory each; the largest server has 2 GPUs with 16160 MiB",
        ),
        (
            GpuRequest(1, servers=("9.9.9.9:1", "x")),
            SERVERS,
            "1 GPUs with 15109 MiB of memory each; no server is called 9.9.9.9:1;x; there are "
            "10.0.0.1:56001, 10.0.0.2:56001",
        ),
        (
            GpuRequest(1, filters=(("device.name", "A100"),)),
            (FIRST,),
            "1 GPUs with 16160 MiB of memory each; no GPU passes the filters device.name=A100",
        ),
        (
            GpuRequest(2, filters=(("device.id", "0"),)),
            (FIRST,),
            "2 GPUs with 16160 MiB of memory each; the largest server has 2 GPUs with 16160 MiB, "
            "at most 1 of one server pass the filters",
        ),
        (GpuRequest(2), (Server("empty", "10.0.0.3", 1, ()),), "2 GPUs; the pool has no GPUs"),
        (
            GpuRequest(1, servers=("empty",)),
            (FIRST, Server("empty", "10.0.0.3", 1, ())),
            "1 GPUs with 16160 MiB of memory each; the servers asked for have no GPUs",
        ),
    ],
)
def test_what_no_server_can_ever_give_is_refused_saying_why(
    request_: GpuRequest, servers: tuple[Server, ...], problem: str
) -> None:
    assert not candidates(request_, servers)
    refusal = never_satisfiable(request_, servers)
    assert isinstance(refusal, NeverSatisfiable)
    assert str(refusal) == f"no server can satisfy the request: {problem}"
