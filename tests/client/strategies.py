"""Hypothesis strategies for requests, and a check that a reader refuses what it cannot read."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from bitfusion_client.errors import BitfusionError
from bitfusion_client.request.gpu_request import GpuRequest

_PRINTABLE = st.characters(min_codepoint=32, max_codepoint=0x2FFF, blacklist_categories=("C", "Z"))
_SOME_BLANK = st.one_of(_PRINTABLE, st.just(" "))
FILTER_KEYS = st.text(_PRINTABLE.filter(lambda letter: letter != "="), min_size=1, max_size=12).filter(
    lambda key: key[0] != "-"
)
FILTERS = st.tuples(FILTER_KEYS, st.text(_SOME_BLANK, min_size=1, max_size=12))
SERVERS = st.builds(
    lambda host, port: f"{host}:{port}",
    st.text("abcdefghijkl0123456789.-", min_size=1, max_size=12).filter(lambda host: host[0] != "-"),
    st.integers(1, 65535),
)
PARTIALS = st.floats(0, 1, exclude_min=True, allow_subnormal=True)
TIMEOUTS = st.floats(1e-9, 2400 * 3600.0)


def requests() -> st.SearchStrategy[GpuRequest]:
    """Every request that can be made."""
    sizes = st.one_of(
        st.just((None, None)),
        st.tuples(PARTIALS, st.none()),
        st.tuples(st.none(), st.integers(1, 1 << 40)),
    )
    return st.builds(
        lambda gpus, size, filters, servers, timeout: GpuRequest(
            gpus, size[0], size[1], filters, servers, timeout
        ),
        st.integers(1, 1024),
        sizes,
        st.lists(FILTERS, max_size=3).map(tuple),
        st.lists(SERVERS, max_size=3).map(tuple),
        st.one_of(st.none(), TIMEOUTS),
    )


def refusal(call: Callable[..., object], *args: object) -> BitfusionError | None:
    """The project's own error `call` raised, None if it raised none; any other exception is a crash."""
    try:
        call(*args)
    except BitfusionError as caught:
        error = caught
    else:
        return None
    assert 1 <= len(error.user_message.splitlines()) <= 4
    return error
