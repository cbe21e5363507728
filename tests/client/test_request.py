"""Every wrong value of a request is named; text and JSON say what was asked."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.gpu_request import GpuRequest
from tests.client.strategies import PARTIALS, refusal, requests

COUNT = "must be a whole number from 1 to 1024"
SHARE = "must be greater than 0.0 and at most 1.0"
MIB = "must be a whole number of MiB, at least 1"
FILTER = "must be key=value, the key without spaces"
SERVER = "must be host:port, without spaces; several are joined by ;"
DURATION = "must be a duration, such as 90, 30m or 2m30s, longer than 0 and at most 2400h"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gpus": 0}, f'Invalid value "0" for gpus: {COUNT}'),
        ({"gpus": -1}, f'Invalid value "-1" for gpus: {COUNT}'),
        ({"gpus": 1025}, f'Invalid value "1025" for gpus: {COUNT}'),
        ({"gpus": True}, f'Invalid value "true" for gpus: {COUNT}'),
        ({"gpus": 1.0}, f'Invalid value "1.0" for gpus: {COUNT}'),
        ({"gpus": 10**6000}, f'Invalid value "a number far too large" for gpus: {COUNT}'),
        ({"partial": 0}, f'Invalid value "0" for partial: {SHARE}'),
        ({"partial": 1.5}, f'Invalid value "1.5" for partial: {SHARE}'),
        ({"partial": float("nan")}, f'Invalid value "nan" for partial: {SHARE}'),
        ({"partial": "half"}, f'Invalid value "half" for partial: {SHARE}'),
        ({"memory_mib": 0}, f'Invalid value "0" for memory_mib: {MIB}'),
        ({"memory_mib": 8.5}, f'Invalid value "8.5" for memory_mib: {MIB}'),
        (
            {"partial": 0.5, "memory_mib": 8},
            'Invalid value "8" for memory_mib: '
            "give either a share (-p) or an amount of memory (-m), not both",
        ),
        (
            {"filters": (("a b", "c"),)},
            'Invalid value "a b=c" for filters: must be key=value, the key without spaces',
        ),
        (
            {"filters": (("a", ""),)},
            f'Invalid value "a=" for filters: {FILTER}',
        ),
        ({"servers": ("a b",)}, f'Invalid value "a b" for servers: {SERVER}'),
        ({"servers": ("a:70000",)}, f'Invalid value "a:70000" for servers: {SERVER}'),
        ({"servers": ("a;b",)}, f'Invalid value "a;b" for servers: {SERVER}'),
        ({"timeout": 0}, f'Invalid value "0" for timeout: {DURATION}'),
        ({"timeout": 1e9}, f'Invalid value "1000000000.0" for timeout: {DURATION}'),
    ],
)
def test_a_wrong_value_names_the_field_the_value_and_what_is_allowed(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        GpuRequest(**values)
    assert caught.value.user_message == message
    assert caught.value.field == next(reversed(values))
    assert "Error: " + str(caught.value) == "Error: i" + message[1:]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (GpuRequest(), "1 GPU"),
        (GpuRequest(2), "2 GPUs"),
        (GpuRequest(2, 0.5), "2 GPUs × 50 %"),
        (GpuRequest(1, 0.07), "1 GPU × 7 %"),
        (GpuRequest(1, 0.333), "1 GPU × 33.3 %"),
        (GpuRequest(1, 1), "1 GPU × 100 %"),
        (GpuRequest(1, 1e-05), "1 GPU × 0.001 %"),
        (GpuRequest(memory_mib=8192), "1 GPU × 8192 MiB"),
        (
            GpuRequest(filters=(("device.name", "Tesla"),), servers=("a:1", "b:2"), timeout=1800),
            "1 GPU, device.name=Tesla, on a:1 or b:2, waiting at most 30m",
        ),
    ],
)
def test_the_text_a_person_reads(request_: GpuRequest, text: str) -> None:
    assert request_.describe() == text


@given(requests())
def test_json_reads_back(request_: GpuRequest) -> None:
    assert GpuRequest.from_json(json.loads(json.dumps(request_.to_json()))) == request_


def test_json_names() -> None:
    full = GpuRequest(2, 0.5, None, (("a", "b=c"),), ("s:1",), 60)
    assert full.to_json() == {
        "gpus": 2,
        "partial": 0.5,
        "filters": ["a=b=c"],
        "servers": ["s:1"],
        "timeout": 60.0,
    }
    assert GpuRequest().to_json() == {"gpus": 1}
    assert GpuRequest.from_json({"filters": [["a", "b"]], "partial": None}) == GpuRequest(
        filters=(("a", "b"),)
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"gpu": 1},
            'Invalid value "1" for gpu: is not a field; '
            "the fields are gpus, partial, memory_mib, filters, servers, timeout",
        ),
        ({"filters": "a=b"}, 'Invalid value "a=b" for filters: must be a list of key=value'),
        ({"filters": ["ab"]}, 'Invalid value "ab" for filters: must be key=value, the key without spaces'),
        ({"filters": [3]}, 'Invalid value "3" for filters: must be key=value, the key without spaces'),
        ({"servers": "s:1"}, 'Invalid value "s:1" for servers: must be a list of host:port'),
        ({"servers": [1]}, f'Invalid value "1" for servers: {SERVER}'),
        ({"gpus": "2"}, f'Invalid value "2" for gpus: {COUNT}'),
    ],
)
def test_wrong_json(data: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        GpuRequest.from_json(data)
    assert caught.value.user_message == message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["gpus", "partial", "memory_mib", "filters", "servers", "timeout"])


@given(st.dictionaries(st.one_of(FIELDS, st.text()), JSON, max_size=6))
def test_no_json_crashes_the_reader(data: Any) -> None:
    refusal(GpuRequest.from_json, data)


@pytest.mark.parametrize(
    ("partial", "total", "mib"),
    [(0.5, 16160, 8080), (0.8, 32510, 26008), (0.29, 100, 29), (0.02, 32510, 650), (1.0, 16160, 16160)],
)
def test_shares_of_memory_are_rounded_down(partial: float, total: int, mib: int) -> None:
    assert GpuRequest(1, partial).memory_per_gpu(total) == mib


def test_memory_of_other_sizes() -> None:
    assert GpuRequest().memory_per_gpu(16160) == 16160
    assert GpuRequest(memory_mib=8000).memory_per_gpu(16160) == 8000


@given(PARTIALS, st.integers(1, 1 << 20))
def test_a_share_never_exceeds_the_card(partial: float, total: int) -> None:
    assert 0 <= GpuRequest(1, partial).memory_per_gpu(total) <= total


def test_requests_are_values() -> None:
    request_: Any = GpuRequest(2, 0.5)
    assert request_ == GpuRequest(gpus=2, partial=0.5)
    assert hash(request_) == hash(GpuRequest(2, 0.5))
    assert request_ != GpuRequest(2)
    assert request_ != (2, 0.5)
    assert pickle.loads(pickle.dumps(request_)) == copy.copy(request_) == copy.deepcopy(request_) == request_
    assert repr(GpuRequest()) == (
        "GpuRequest(gpus=1, partial=None, memory_mib=None, filters=(), servers=(), timeout=None)"
    )
    with pytest.raises(AttributeError, match="cannot assign to 'gpus': GpuRequest is frozen"):
        request_.gpus = 3
    with pytest.raises(AttributeError, match="cannot delete 'gpus': GpuRequest is frozen"):
        del request_.gpus
