"""Hypothesis strategies: any message that a client or a service may send."""

from __future__ import annotations

from hypothesis import strategies as st

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.inventory.nvidia.device_use import DeviceUse
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import HELD, PROCESS, REMOTE, RESERVED, WAITING, Entry, Holder
from bitfusion_pool.messages.from_client import (
    Acquire,
    Alive,
    Cancel,
    End,
    Hello,
    IssueToken,
    ListTokens,
    Look,
    Release,
    Renew,
    Report,
    Resume,
    RevokeToken,
)
from bitfusion_pool.messages.from_service import (
    Granted,
    PoolSnapshot,
    Refused,
    Released,
    Renewed,
    TokenIssued,
    TokenList,
    TokensRevoked,
    Waiting,
    Welcome,
)
from bitfusion_pool.messages.message import Message
from bitfusion_pool.messages.pool_values import IssuedToken

text = st.text(max_size=20)
whole = st.integers(-(2**53), 2**53)
seconds = st.floats(allow_nan=False, allow_infinity=False)
kinds = st.sampled_from([PROCESS, RESERVED, REMOTE])
requests = st.one_of(
    st.builds(GpuRequest, st.integers(1, 8), st.floats(0.01, 1)),
    st.builds(
        GpuRequest,
        st.integers(1, 8),
        st.none(),
        st.integers(1, 80_000),
        st.just((("model", "V 100"),)),
        st.just(("10.0.0.5:56001",)),
        st.floats(1, 3600),
    ),
)
devices = st.builds(Device, whole, text, whole, st.booleans(), text)
servers = st.builds(
    Server, text, text, whole, st.lists(devices, max_size=2).map(tuple), whole, text, text, st.booleans()
)
shares = st.builds(Share, text, whole, whole)
holders = st.builds(Holder, text, text, whole, text, whole)
activities = st.builds(KernelActivity, st.just("idle"), st.just(5.0), st.floats(0, 1e9), st.just("x.ipynb"))
entries = st.builds(
    Entry,
    whole,
    text,
    st.sampled_from([WAITING, HELD]),
    kinds,
    requests,
    holders,
    st.lists(text, max_size=2).map(tuple),
    seconds,
    st.none() | seconds,
    st.none() | seconds,
    st.lists(shares, max_size=2).map(tuple),
    st.none() | activities,
)
uses = st.builds(DeviceUse, whole, text, st.none() | whole, text)
snapshots = st.builds(
    PoolSnapshot,
    seconds,
    seconds,
    st.lists(servers, max_size=2).map(tuple),
    st.lists(entries, max_size=5).map(tuple),
    st.integers(0, 10),
    st.lists(shares, max_size=2).map(tuple),
    text,
    st.lists(st.tuples(text, whole, uses), max_size=2).map(tuple),
)

messages_of_clients: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, whole, text, text),
    st.builds(Look),
    st.builds(Acquire, requests, kinds, text, whole, text, text, st.booleans()),
    st.builds(Cancel),
    st.builds(Release, text, text),
    st.builds(Resume, text, text),
    st.builds(Renew, text, text),
    st.builds(End, text),
    st.builds(Alive),
    st.builds(Report, text, text, text, seconds, seconds, text),
    st.builds(IssueToken, text, seconds, st.booleans(), text, whole, seconds, whole, whole),
    st.builds(RevokeToken, text),
    st.builds(ListTokens, text),
)
issued = st.builds(IssuedToken, text, text, seconds, seconds, whole, seconds, whole, whole)
messages_of_services: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        Welcome,
        whole,
        text,
        text,
        st.booleans(),
        st.lists(servers, max_size=2).map(tuple),
        text,
        seconds,
        seconds,
        seconds,
        seconds,
        text,
    ),
    st.builds(Refused, text, text, text),
    snapshots,
    st.builds(Waiting, whole, whole, text, text, text),
    st.builds(Granted, entries, servers, text),
    st.builds(Released, text, st.booleans()),
    st.builds(Renewed, text),
    st.builds(TokenIssued, text, issued),
    st.builds(TokensRevoked, text, whole),
    st.builds(TokenList, st.lists(issued, max_size=2).map(tuple), st.booleans()),
    st.builds(Alive),
)
