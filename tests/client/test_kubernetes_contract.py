from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes_contract import (
    KubernetesRequest,
    is_copied_annotation,
    is_size_resource,
    parse_request_annotation,
    request_from_kubernetes,
    request_to_kubernetes,
    units,
)
from bitfusion_client.request import GpuRequest
from tests.client.strategies import refusal, requests

AMOUNT = "bitfusion.io/gpu-amount"
PERCENT = "bitfusion.io/gpu-percent"
MEMORY = "bitfusion.io/gpu-memory"
COUNT = "must be a whole number from 1 to 1024"
KEYS = (
    "is no known size; known are gpu-amount (with gpu-percent or gpu-memory), gpu-1 to gpu-100 (percent), "
    "gpu-8gib and gpu-8000mib"
)
QUANTITY = "must be an amount of at least 1 MiB like 8000Mi, 8Gi or 8G"


@pytest.mark.parametrize(
    ("limits", "request_"),
    [
        ({AMOUNT: "2"}, GpuRequest(2)),
        ({AMOUNT: 2}, GpuRequest(2)),
        ({AMOUNT: "1", PERCENT: "50"}, GpuRequest(1, 0.5)),
        ({AMOUNT: "2", PERCENT: 100}, GpuRequest(2, 1.0)),
        ({AMOUNT: "1", MEMORY: "8Gi"}, GpuRequest(memory_mib=8192)),
        ({AMOUNT: "1", MEMORY: "8000M"}, GpuRequest(memory_mib=7629)),
        ({AMOUNT: "1", MEMORY: "8000Mi"}, GpuRequest(memory_mib=8000)),
        ({"bitfusion.io/gpu-50": "2"}, GpuRequest(2, 0.5)),
        ({"bitfusion.io/gpu-100": "1"}, GpuRequest(1, 1.0)),
        ({"bitfusion.io/gpu-8gib": "1"}, GpuRequest(memory_mib=8192)),
        ({"bitfusion.io/gpu-8000mib": "3"}, GpuRequest(3, memory_mib=8000)),
        ({"cpu": "500m", "memory": "1Gi", "bitfusion.io/gpu-50": "1"}, GpuRequest(1, 0.5)),
        # nothing asked for
        ({}, None),
        (None, None),
        ({"nvidia.com/gpu": "1"}, None),
        ({"bitfusion.io/gpu": "150"}, None),
    ],
)
def test_limits(limits, request_):
    assert request_from_kubernetes(limits) == request_


@pytest.mark.parametrize(
    ("limits", "field", "message"),
    [
        ({AMOUNT: "0"}, AMOUNT, f'Invalid value "0" for {AMOUNT}: {COUNT}'),
        ({AMOUNT: 0, PERCENT: "50"}, AMOUNT, f'Invalid value "0" for {AMOUNT}: {COUNT}'),
        (
            {"bitfusion.io/gpu-50": "0"},
            "bitfusion.io/gpu-50",
            f'Invalid value "0" for bitfusion.io/gpu-50: {COUNT}',
        ),
        ({AMOUNT: "1.5"}, AMOUNT, f'Invalid value "1.5" for {AMOUNT}: {COUNT}'),
        ({AMOUNT: "two"}, AMOUNT, f'Invalid value "two" for {AMOUNT}: {COUNT}'),
        ({AMOUNT: "-1"}, AMOUNT, f'Invalid value "-1" for {AMOUNT}: {COUNT}'),
        ({AMOUNT: "2k"}, AMOUNT, f'Invalid value "2k" for {AMOUNT}: {COUNT}'),
        ({AMOUNT: None}, AMOUNT, f'Invalid value "None" for {AMOUNT}: {COUNT}'),
        (
            {AMOUNT: "1", PERCENT: "0"},
            PERCENT,
            f'Invalid value "0" for {PERCENT}: must be a whole number from 1 to 100',
        ),
        (
            {AMOUNT: "1", PERCENT: "101"},
            PERCENT,
            f'Invalid value "101" for {PERCENT}: must be a whole number from 1 to 100',
        ),
        (
            {AMOUNT: "1", PERCENT: "33.3"},
            PERCENT,
            f'Invalid value "33.3" for {PERCENT}: must be a whole number from 1 to 100',
        ),
        ({AMOUNT: "1", MEMORY: "8"}, MEMORY, f'Invalid value "8" for {MEMORY}: {QUANTITY}'),
        ({AMOUNT: "1", MEMORY: "all"}, MEMORY, f'Invalid value "all" for {MEMORY}: {QUANTITY}'),
        (
            {AMOUNT: "1", MEMORY: "9Ei"},
            MEMORY,
            f'Invalid value "9Ei" for {MEMORY}: must be a whole number of MiB, at least 1',
        ),
        ({PERCENT: "50"}, PERCENT, f'Invalid value "50" for {PERCENT}: needs {AMOUNT} beside it'),
        ({MEMORY: "8Gi"}, MEMORY, f'Invalid value "8Gi" for {MEMORY}: needs {AMOUNT} beside it'),
        (
            {AMOUNT: "1", PERCENT: "50", MEMORY: "8Gi"},
            MEMORY,
            f'Invalid value "8Gi" for {MEMORY}: gpu-percent and gpu-memory exclude each other',
        ),
        (
            {"bitfusion.io/gpu-50": "1", "bitfusion.io/gpu-8gib": "1"},
            "bitfusion.io/gpu-8gib",
            'Invalid value "1" for bitfusion.io/gpu-8gib: '
            "only one size may be given; there is also bitfusion.io/gpu-50",
        ),
        (
            {AMOUNT: "1", "bitfusion.io/gpu-50": "1"},
            "bitfusion.io/gpu-50",
            f'Invalid value "1" for bitfusion.io/gpu-50: only one size may be given; there is also {AMOUNT}',
        ),
        (
            {PERCENT: "50", "bitfusion.io/gpu-50": "1"},
            PERCENT,
            f'Invalid value "50" for {PERCENT}: '
            "only one size may be given; there is also bitfusion.io/gpu-50",
        ),
        (
            {"bitfusion.io/gpu-101": "1"},
            "bitfusion.io/gpu-101",
            f'Invalid value "gpu-101" for bitfusion.io/gpu-101: {KEYS}',
        ),
        (
            {"bitfusion.io/gpu-050": "1"},
            "bitfusion.io/gpu-050",
            f'Invalid value "gpu-050" for bitfusion.io/gpu-050: {KEYS}',
        ),
        (
            {"bitfusion.io/gpu-num": "1"},
            "bitfusion.io/gpu-num",
            f'Invalid value "gpu-num" for bitfusion.io/gpu-num: {KEYS}',
        ),
        (
            {"bitfusion.io/gpu-gib": "1"},
            "bitfusion.io/gpu-gib",
            f'Invalid value "gpu-gib" for bitfusion.io/gpu-gib: {KEYS}',
        ),
        (
            {"bitfusion.io/gpu-": "1"},
            "bitfusion.io/gpu-",
            f'Invalid value "gpu-" for bitfusion.io/gpu-: {KEYS}',
        ),
        (
            {"bitfusion.io/gpu-999999999999999gib": "1"},
            "bitfusion.io/gpu-999999999999999gib",
            'Invalid value "1" for bitfusion.io/gpu-999999999999999gib: '
            "must be a whole number of MiB, at least 1",
        ),
        (
            {"bitfusion.io/gpu-50": "2000"},
            "bitfusion.io/gpu-50",
            f'Invalid value "2000" for bitfusion.io/gpu-50: {COUNT}',
        ),
    ],
)
def test_wrong_limits(limits, field, message):
    with pytest.raises(InvalidRequest) as caught:
        request_from_kubernetes(limits)
    assert caught.value.user_message == message
    assert caught.value.field == field


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
def test_annotations_beside_half_a_gpu(annotations, request_):
    assert request_from_kubernetes({"bitfusion.io/gpu-50": "1"}, annotations) == request_


def test_the_annotation_alone_is_a_request_and_a_filter_alone_is_none():
    assert request_from_kubernetes({}, {"bitfusion.io/request": "-n 1"}) == GpuRequest()
    assert request_from_kubernetes({}, {"bitfusion-client/filter": "a=b"}) is None


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            "bitfusion.io/request",
            "-n 1 -p 2",
            'Invalid value "-n 1 -p 2" for bitfusion.io/request: '
            'invalid value "2" for -p: must be greater than 0.0 and at most 1.0',
        ),
        (
            "bitfusion.io/request",
            "-p 0.5",
            'Invalid value "-p 0.5" for bitfusion.io/request: the number of GPUs is missing: -n; '
            "options are written as for the bitfusion command: -n 2, or -n 1 -p 0.5",
        ),
        (
            "bitfusion.io/request",
            "half a GPU",
            'Invalid value "half a GPU" for bitfusion.io/request: the number of GPUs is missing: -n; '
            "options are written as for the bitfusion command: -n 2, or -n 1 -p 0.5",
        ),
        (
            "bitfusion.io/request",
            "{gpus: 1}",
            'Invalid value "{gpus: 1}" for bitfusion.io/request: is not JSON',
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
def test_wrong_annotations(key, text, message):
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
def test_write(request_, limits, annotations):
    assert request_to_kubernetes(request_) == KubernetesRequest(limits, annotations)


@given(requests())
def test_read_back(request_):
    spelled = request_to_kubernetes(request_)
    assert request_from_kubernetes(spelled.limits, spelled.annotations) == request_
    # the size in the limits is never less than what the annotation says
    by_limits = request_from_kubernetes(spelled.limits)
    assert by_limits is not None
    assert units(by_limits, 1 << 40) >= units(request_, 1 << 40)


@given(requests())
def test_both_forms_of_the_annotation(request_):
    assert parse_request_annotation(json.dumps(request_.to_json())) == request_


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
def test_nothing_crashes_the_reader(limits, annotations):
    error = refusal(request_from_kubernetes, limits, annotations)
    assert error is None or isinstance(error, InvalidRequest)


def test_deep_json_is_refused():
    error = refusal(parse_request_annotation, '{"gpus":' + "[" * 4_000)
    assert isinstance(error, InvalidRequest)
    assert error.allowed == "is not JSON"


@pytest.mark.parametrize(
    ("request_", "total", "expected"),
    [
        (GpuRequest(2), None, 200),
        (GpuRequest(1, 0.5), None, 50),
        (GpuRequest(3, 0.29), None, 87),
        (GpuRequest(1, 0.333), None, 34),
        (GpuRequest(3, 0.333), None, 100),
        (GpuRequest(1, 1e-09), None, 1),
        (GpuRequest(memory_mib=8080), 16160, 50),
        (GpuRequest(memory_mib=8081), 16160, 51),
        (GpuRequest(2, memory_mib=8081), 16160, 101),
        (GpuRequest(memory_mib=16160), 16160, 100),
    ],
)
def test_units(request_, total, expected):
    assert units(request_, total) == expected


def test_units_that_cannot_be_counted():
    with pytest.raises(InvalidRequest) as caught:
        units(GpuRequest(memory_mib=8192))
    assert caught.value.user_message == (
        f'Invalid value "8192" for {MEMORY}: '
        "needs the memory of one of the pool's GPUs to be counted in units; it is not known"
    )
    with pytest.raises(InvalidRequest) as caught:
        units(GpuRequest(memory_mib=16161), 16160)
    assert caught.value.user_message == (
        f'Invalid value "16161" for {MEMORY}: must be at most 16160 MiB, the memory of one GPU'
    )


def test_names():
    assert [
        name for name in (AMOUNT, "bitfusion.io/gpu-x", "bitfusion.io/gpu", "cpu") if is_size_resource(name)
    ] == [
        AMOUNT,
        "bitfusion.io/gpu-x",
    ]
    names = (
        "auto-management/bitfusion",
        "bitfusion-client/os",
        "bitfusion.io/request",
        "bitfusion.io/pending",
        "x/y",
    )
    assert [name for name in names if is_copied_annotation(name)] == list(names[:3])
