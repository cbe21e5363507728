"""Who gets which GPUs, and what is refused for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.placement import Share, candidates, choose
from bitfusion_pool.inventory.servers import Server
from tests.pool.inventory.two_servers import SERVERS, A, B


def free_of(*servers: Server) -> dict[tuple[str, int], int]:
    return {(one.key, device.number): device.memory_mib for one in servers for device in one.devices}


@pytest.mark.parametrize(
    ("request_", "used", "closed", "shares"),
    [
        (GpuRequest(1), {}, set(), (Share(A, 0, 16160),)),
        (GpuRequest(1, memory_mib=15000), {}, set(), (Share(B, 0, 15000),)),
        (GpuRequest(2, servers=("first",)), {}, set(), (Share(A, 0, 16160), Share(A, 1, 16160))),
        (GpuRequest(1, 0.5, servers=("first",)), {(A, 1): 8080}, set(), (Share(A, 1, 8080),)),
        (GpuRequest(1, 0.6, servers=("first",)), {(A, 1): 8080}, set(), (Share(A, 0, 9696),)),
        (GpuRequest(2, servers=("first",)), {(A, 1): 1}, set(), None),
        (GpuRequest(1, memory_mib=16000), {(A, 0): 161}, set(), (Share(A, 1, 16000),)),
        (GpuRequest(1), {}, {B}, (Share(A, 0, 16160),)),
        (GpuRequest(1), {}, {A, B}, None),
    ],
)
def test_the_fullest_devices_that_fit_are_chosen_all_of_one_server(
    request_: GpuRequest,
    used: dict[tuple[str, int], int],
    closed: set[str],
    shares: tuple[Share, ...] | None,
) -> None:
    free = {place: memory - used.get(place, 0) for place, memory in free_of(*SERVERS).items()}
    assert choose(request_.gpus, candidates(request_, SERVERS), free, closed) == shares


@given(
    st.integers(1, 4),
    st.one_of(st.none(), st.floats(0.02, 1)),
    st.dictionaries(st.sampled_from(sorted(free_of(*SERVERS))), st.integers(0, 16160)),
)
def test_a_choice_never_takes_more_than_is_free_nor_mixes_servers(
    gpus: int, partial: float | None, free: dict[tuple[str, int], int]
) -> None:
    request = GpuRequest(gpus, partial)
    shares = choose(gpus, candidates(request, SERVERS), free)
    if shares is None:
        for server in SERVERS:
            fitting = [
                device
                for device in server.devices
                if free.get((server.key, device.number), 0) >= request.memory_per_gpu(device.memory_mib)
            ]
            assert len(fitting) < gpus
        return
    assert len({share.server for share in shares}) == 1
    assert len({share.number for share in shares}) == gpus
    assert all(share.memory_mib <= free[share.server, share.number] for share in shares)
