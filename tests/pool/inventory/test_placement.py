"""Who gets which GPUs, and what is refused for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest, NeverSatisfiable
from bitfusion_client.request import GpuRequest
from bitfusion_pool.inventory.placement import Share, candidates, choose
from bitfusion_pool.inventory.refusals import never_satisfiable
from bitfusion_pool.inventory.servers import Device, Server, default_servers

V100 = tuple(Device(number, "Tesla V100-PCIE-16GB", 16160) for number in range(2))
T4 = tuple(Device(number, "Tesla T4", 15109) for number in range(4))
FIRST = Server("first", "10.0.0.1", 56001, V100, hostname="bf-one", has_rdma=True, cuda_version="11.2")
SECOND = Server(
    "second", "10.0.0.2", 56001, T4, hostname="bf-two", cuda_version="10.2", driver_version="450.1"
)
SERVERS = (FIRST, SECOND)
A, B = FIRST.key, SECOND.key


def free_of(*servers: Server) -> dict[tuple[str, int], int]:
    return {(one.key, device.number): device.memory_mib for one in servers for device in one.devices}


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
