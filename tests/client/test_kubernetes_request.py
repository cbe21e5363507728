"""A request reads back from the limits and annotations it is written as."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.request import (
    KubernetesRequest,
    request_from_kubernetes,
    request_to_kubernetes,
)
from bitfusion_client.kubernetes.sizes import units
from bitfusion_client.request.gpu_request import GpuRequest
from tests.client.size_words import AMOUNT, MEMORY, PERCENT
from tests.client.strategies import refusal, requests


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        ({"bitfusion.io/request": "-n 2 -p 0.25"}, GpuRequest(2, 0.25)),
        ({"bitfusion.io/request": '{"gpus": 2, "memory_mib": 8192}'}, GpuRequest(2, memory_mib=8192)),
        ({"bitfusion.io/request": "-n 1 --timeout 1h"}, GpuRequest(timeout=3600)),
        ({"bitfusion.io/request": " "}, GpuRequest(1, 0.5)),
        ({}, GpuRequest(1, 0.5)),
        (None, GpuRequest(1, 0.5)),
        (
            {"bitfusion-client/filter": " device.name=Tesla  server.has-rdma=true "},
            GpuRequest(1, 0.5, filters=(("device.name", "Tesla"), ("server.has-rdma", "true"))),
        ),
        (
            {"bitfusion.io/request": "-n 1", "bitfusion-client/filter": "a=b"},
            GpuRequest(filters=(("a", "b"),)),
        ),
        (
            {"bitfusion.io/request": "-n 1 --filter c=d", "bitfusion-client/filter": "a=b"},
            GpuRequest(filters=(("c", "d"),)),
        ),
    ],
)
def test_annotations_beside_half_a_gpu(annotations: Any, request_: GpuRequest) -> None:
    assert request_from_kubernetes({"bitfusion.io/gpu-50": "1"}, annotations) == request_


def test_the_annotation_alone_is_a_request_and_a_filter_alone_is_none() -> None:
    assert request_from_kubernetes({}, {"bitfusion.io/request": "-n 1"}) == GpuRequest()
    assert request_from_kubernetes({}, {"bitfusion-client/filter": "a=b"}) is None


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            "bitfusion.io/request",
            "-n 1 -p 2",
            'Invalid value "-n 1 -p 2" for bitfusion.io/request: '
            '-p "2" must be greater than 0.0 and at most 1.0; for 2 GPUs write -n 2',
        ),
        (
            "bitfusion.io/request",
            "-p 0.5",
            'Invalid value "-p 0.5" for bitfusion.io/request: the number of GPUs is missing, as in -n 1; '
            "the options are -n GPUS, -p SHARE or -m MIB, --filter KEY=VALUE, --server_list HOST:PORT, "
            "--timeout 30m.",
        ),
        (
            "bitfusion.io/request",
            "half a GPU",
            'Invalid value "half a GPU" for bitfusion.io/request: the number of GPUs is missing, as in -n 1; '
            "the options are -n GPUS, -p SHARE or -m MIB, --filter KEY=VALUE, --server_list HOST:PORT, "
            "--timeout 30m.",
        ),
        (
            "bitfusion.io/request",
            "{gpus: 1}",
            'Invalid value "{gpus: 1}" for bitfusion.io/request: is not JSON such as '
            '{"gpus": 1, "partial": 0.5}; options are simpler: -n 1 -p 0.5',
        ),
        ("bitfusion.io/request", 5, 'Invalid value "5" for bitfusion.io/request: must be text'),
        (
            "bitfusion-client/filter",
            "a=b c",
            'Invalid value "c" for bitfusion-client/filter: must be key=value, the key without spaces',
        ),
        (
            "bitfusion-client/filter",
            "a=",
            'Invalid value "a=" for bitfusion-client/filter: must be key=value, the key without spaces',
        ),
        (
            "bitfusion-client/filter",
            7,
            'Invalid value "7" for bitfusion-client/filter: must be key=value, the key without spaces',
        ),
    ],
)
def test_wrong_annotations(key: str, text: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_from_kubernetes({AMOUNT: "1"}, {key: text})
    assert caught.value.user_message == message


@pytest.mark.parametrize(
    ("request_", "limits", "annotations"),
    [
        (GpuRequest(2), {AMOUNT: "2"}, {}),
        (GpuRequest(2, 0.5), {"bitfusion.io/gpu-50": "2"}, {}),
        (GpuRequest(1, 0.07), {"bitfusion.io/gpu-7": "1"}, {}),
        (GpuRequest(memory_mib=8192), {"bitfusion.io/gpu-8gib": "1"}, {}),
        (GpuRequest(memory_mib=8000), {"bitfusion.io/gpu-8000mib": "1"}, {}),
        (
            GpuRequest(1, 0.333),
            {"bitfusion.io/gpu-34": "1"},
            {"bitfusion.io/request": "-n 1 -p 0.333"},
        ),
        (
            GpuRequest(filters=(("a", "b"), ("c", "d"))),
            {AMOUNT: "1"},
            {"bitfusion-client/filter": "a=b c=d"},
        ),
        (
            GpuRequest(filters=(("a", "b c"),), servers=("s:1",)),
            {AMOUNT: "1"},
            {"bitfusion.io/request": "-n 1 --filter 'a=b c' --server_list s:1"},
        ),
        (GpuRequest(timeout=60), {AMOUNT: "1"}, {"bitfusion.io/request": "-n 1 --timeout 1m"}),
    ],
)
def test_write(request_: GpuRequest, limits: Any, annotations: Any) -> None:
    assert request_to_kubernetes(request_) == KubernetesRequest(limits, annotations)


@given(requests())
def test_read_back(request_: GpuRequest) -> None:
    spelled = request_to_kubernetes(request_)
    assert request_from_kubernetes(spelled.limits, spelled.annotations) == request_
    # the size in the limits is never less than what the annotation says
    by_limits = request_from_kubernetes(spelled.limits)
    assert by_limits is not None
    assert units(by_limits, 1 << 40) >= units(request_, 1 << 40)


NAMES = st.sampled_from([AMOUNT, PERCENT, MEMORY, "bitfusion.io/gpu-50", "bitfusion.io/gpu-8gib", "cpu"])
VALUES = st.one_of(
    st.text(),
    st.text("0123456789.eEmkMGi-"),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.lists(st.none()),
)


@given(
    st.dictionaries(st.one_of(NAMES, st.text().map("bitfusion.io/gpu-{}".format)), VALUES, max_size=4),
    st.dictionaries(
        st.sampled_from(["bitfusion.io/request", "bitfusion-client/filter"]),
        st.one_of(VALUES, st.text().map("{{{}".format), st.text().map("-n 1 {}".format)),
    ),
)
def test_nothing_crashes_the_reader(limits: Any, annotations: Any) -> None:
    error = refusal(request_from_kubernetes, limits, annotations)
    assert error is None or isinstance(error, InvalidRequest)
