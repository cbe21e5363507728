"""Keys that spell a size: what they say, and which one was meant by another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.keys import allowed_count, is_known_key, meant_key, size_of_key
from bitfusion_client.kubernetes.sizes import format_size, parse_sizes
from bitfusion_client.request.gpu_request import GpuRequest

GPU = "bitfusion.io/gpu-"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1x50", "50"),
        ("1x8gib", "8gib"),
        ("1x100", "100"),
        ("1x", "amount"),
        ("03x50", "3x50"),
        ("3x050", "3x50"),
        ("3X50", "3x50"),
        ("3*50", "3x50"),
        ("3×50", "3x50"),
        ("3-x-50", "3x50"),
        ("3_x_50", "3x50"),
        ("3x50%", "3x50"),
        ("3x50-percent", "3x50"),
        ("3xhalf", "3x50"),
        ("3x0.25", "3x25"),
        ("3x8Gi", "3x8gib"),
        ("3x8GB", "3x8gib"),
        ("3x8000M", "3x8000mib"),
        ("50%x3", "3x50"),
        ("8gib*3", "3x8gib"),
        ("half-x-3", "3x50"),
        ("50X3", "50x3"),  # two numbers are taken as a key has them
        ("3x", "3x100"),
        ("amountx2", "2x100"),
        ("0x50", ""),
        ("x50", ""),
        ("x3", ""),
        ("*3x", ""),
        ("3x0", ""),
        ("3x101", ""),
        ("3x50x2", ""),
        ("3*50x2", ""),
        ("50%x3*2", ""),
        ("3xpercent", ""),
        ("3xmemory", ""),
        ("1025x50", ""),
        ("9999999999999999x5", ""),
        ("1024x999999999999999g", "1024x999999999999999gib"),
        ("3x50" + " " * 21, ""),  # longer than what is guessed at
        ("٣x50", ""),
    ],
)
def test_another_spelling_of_a_number_is_understood_or_not_guessed_at(written: str, meant: str) -> None:
    assert not is_known_key(GPU + written)
    assert meant_key(GPU + written) == (GPU + meant if meant else "")


GPUS = st.integers(2, 1024)
SIZES = st.one_of(st.integers(1, 100).map(str), st.integers(1, 1 << 20).map(lambda mib: f"{mib}mib"))


@given(GPUS, SIZES, st.integers(1, 1100))
def test_a_number_in_the_key_is_the_same_as_in_the_value(gpus: int, size: str, value: int) -> None:
    def asked(key: str, count: int) -> object:
        try:
            request = parse_sizes({GPU + key: str(count)})
        except InvalidRequest as error:
            return error.allowed == allowed_count(GPU + key)
        assert request is not None
        # the whole of a GPU: no share, or all of it
        return request.gpus, request.partial or (None if request.memory_mib else 1), request.memory_mib

    assert asked(f"{gpus}x{size}", value) == asked(size, gpus * value)


@given(
    st.integers(1, 32),
    st.integers(1, 32),
    st.one_of(
        st.just((None, None)),
        st.tuples(st.integers(1, 99).map(lambda percent: percent / 100), st.none()),
        st.tuples(st.none(), st.integers(1, 1 << 40)),
    ),
)
def test_what_is_formatted_with_its_number_is_read_back(
    gpus: int, value: int, size: tuple[float | None, int | None]
) -> None:
    request = GpuRequest(gpus * value, *size)
    limits, exact = format_size(request, gpus)
    assert exact
    assert parse_sizes(limits) == request
    assert list(limits.values()) == [str(value)]
    ((key, _),) = limits.items()
    assert len(key.partition("/")[2]) <= 63  # as Kubernetes has it, as are the letters
    assert key.partition("/")[2].replace("-", "").isalnum()


@given(st.text("0123456789x*×-_gGmMiIbB%", max_size=26))
def test_what_is_suggested_is_known_and_the_same_as_itself(text: str) -> None:
    name = GPU + text
    meant = meant_key(name)
    assert not meant or is_known_key(meant)
    if size_of_key(name):
        assert format_size_of(name) == name


def format_size_of(name: str) -> str:
    """The key again, of what it says."""
    gpus, share, memory_mib = size_of_key(name) or (1, None, None)
    if memory_mib is not None and memory_mib > 1 << 40:
        return name  # known, but nobody's size
    ((key, _),) = format_size(GpuRequest(gpus, share, memory_mib), gpus)[0].items()
    # 1024 MiB are written as a GiB by who formats; both are known
    return name if key.endswith("gib") and name.endswith("mib") else key
