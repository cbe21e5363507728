"""Size keys in limits: every spelling, every refusal, and units."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.kubernetes.request import request_from_kubernetes
from bitfusion_client.kubernetes.sizes import units
from bitfusion_client.request.gpu_request import GpuRequest
from tests.client.size_words import AMOUNT, COUNT, KEYS, MEMORY, PERCENT, QUANTITY

WRONG_NUMBERS = ("0x50", "x50", "3x0", "3x101", "1025x50", "9999999999999999x5", "3xgib", "3x50x2", "-3x50x")
THREES = "must be a whole number from 1 to 341, each of 3 GPUs"


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
        # a number in the key, which the value multiplies
        ({"bitfusion.io/gpu-3x50": "1"}, GpuRequest(3, 0.5)),
        ({"bitfusion.io/gpu-3x50": 2}, GpuRequest(6, 0.5)),
        ({"bitfusion.io/gpu-3x8gib": "1"}, GpuRequest(3, memory_mib=8192)),
        ({"bitfusion.io/gpu-3x8000mib": "1"}, GpuRequest(3, memory_mib=8000)),
        ({"bitfusion.io/gpu-3x100": "1"}, GpuRequest(3)),
        ({"bitfusion.io/gpu-3x100": "2"}, GpuRequest(6)),
        ({"bitfusion.io/gpu-50x3": "1"}, GpuRequest(50, 0.03)),
        ({"bitfusion.io/gpu-1024x1": "1"}, GpuRequest(1024, 0.01)),
        ({"bitfusion.io/gpu-3x50": "341"}, GpuRequest(1023, 0.5)),
        ({"cpu": "500m", "memory": "1Gi", "bitfusion.io/gpu-50": "1"}, GpuRequest(1, 0.5)),
        # nothing asked for
        ({}, None),
        (None, None),
        ({"nvidia.com/gpu": "1"}, None),
        ({"bitfusion.io/gpu": "150"}, None),  # judged where it stands, with the resources of a container
    ],
)
def test_limits(limits: Any, request_: GpuRequest) -> None:
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
        ({AMOUNT: None}, AMOUNT, f'Invalid value "null" for {AMOUNT}: {COUNT}'),
        ({AMOUNT: True}, AMOUNT, f'Invalid value "true" for {AMOUNT}: {COUNT}'),
        ({AMOUNT: [1, None]}, AMOUNT, f'Invalid value "[1, null]" for {AMOUNT}: {COUNT}'),
        *(
            (
                {AMOUNT: "1", PERCENT: value},
                PERCENT,
                f'Invalid value "{value}" for {PERCENT}: must be a whole number from 1 to 100{advice}',
            )
            for value, advice in (
                ("0", ""),
                ("101", ""),
                ("33.3", ""),
                ("half", ""),
                ("50%", "; write 50"),
                ("50 %", "; write 50"),
                ("100%", "; write 100"),
                ("0%", ""),
                ("101%", ""),
                ("0.5", "; write 50"),
                (0.5, "; write 50"),
                ("500m", "; write 50"),
                ("0.333", ""),
            )
        ),
        *(
            (
                {AMOUNT: "1", MEMORY: value},
                MEMORY,
                f'Invalid value "{value}" for {MEMORY}: {QUANTITY}{advice}',
            )
            for value, advice in (
                ("8", "; without a unit the value is in bytes: write 8Gi"),
                (8192, "; without a unit the value is in bytes: write 8192Mi"),
                ("16000", "; without a unit the value is in bytes: write 16000Mi"),
                ("8GB", "; write 8G"),
                ("8 GiB", "; write 8Gi"),
                ("8gi", "; write 8Gi"),
                ("8000m", "; write 8000M"),
                ("0Gi", ""),
                ("1Ki", ""),
                ("-8Gi", ""),
                ("all", ""),
            )
        ),
        (
            {AMOUNT: "1", MEMORY: "9Ei"},
            MEMORY,
            f'Invalid value "9Ei" for {MEMORY}: must be a whole number of MiB, at least 1',
        ),
        ({PERCENT: "50"}, PERCENT, f"{PERCENT} also needs {AMOUNT}"),
        ({MEMORY: "8Gi"}, MEMORY, f"{MEMORY} also needs {AMOUNT}"),
        (
            {AMOUNT: "1", PERCENT: "50", MEMORY: "8Gi"},
            MEMORY,
            f"{MEMORY} cannot be combined with {PERCENT}",
        ),
        (
            {"bitfusion.io/gpu-50": "1", "bitfusion.io/gpu-8gib": "1"},
            "bitfusion.io/gpu-8gib",
            "bitfusion.io/gpu-8gib is a second size in addition to bitfusion.io/gpu-50",
        ),
        (
            {AMOUNT: "1", "bitfusion.io/gpu-50": "1"},
            "bitfusion.io/gpu-50",
            f"bitfusion.io/gpu-50 is a second size in addition to {AMOUNT}",
        ),
        (
            {PERCENT: "50", "bitfusion.io/gpu-50": "1"},
            PERCENT,
            f"{PERCENT} is a second size in addition to bitfusion.io/gpu-50",
        ),
        *(
            ({f"bitfusion.io/gpu-{key}": "1"}, f"bitfusion.io/gpu-{key}", f"bitfusion.io/gpu-{key} {KEYS}")
            for key in ("101", "gib", "foo", "0", "000", "8tib", "50-50", *WRONG_NUMBERS)
        ),
        (
            {"bitfusion.io/gpu-3x50": "1", "bitfusion.io/gpu-50": "1"},
            "bitfusion.io/gpu-50",
            "bitfusion.io/gpu-50 is a second size in addition to bitfusion.io/gpu-3x50",
        ),
        (
            {"bitfusion.io/gpu-3x50": "1", PERCENT: "50"},
            PERCENT,
            f"{PERCENT} is a second size in addition to bitfusion.io/gpu-3x50",
        ),
        *(
            (
                {"bitfusion.io/gpu-3x50": value},
                "bitfusion.io/gpu-3x50",
                f'Invalid value "{value}" for bitfusion.io/gpu-3x50: {THREES}',
            )
            for value in ("0", "342", "0.5", "two", "-1", "9" * 64, "9" * 65)
        ),
        (
            {"bitfusion.io/gpu-3x999999999999999gib": "1"},
            "bitfusion.io/gpu-3x999999999999999gib",
            'Invalid value "1" for bitfusion.io/gpu-3x999999999999999gib: '
            "must be a whole number of MiB, at least 1",
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
def test_wrong_limits(limits: Any, field: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_from_kubernetes(limits)
    assert caught.value.user_message == message
    assert caught.value.field == field


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
def test_units(request_: GpuRequest, total: int | None, expected: int) -> None:
    assert units(request_, total) == expected


def test_units_that_cannot_be_counted() -> None:
    with pytest.raises(InvalidRequest) as caught:
        units(GpuRequest(memory_mib=8192))
    assert caught.value.user_message == (
        f'Invalid value "8192" for {MEMORY}: '
        "cannot be converted to units, because the memory of the pool's GPUs is not known"
    )
    with pytest.raises(InvalidRequest) as caught:
        units(GpuRequest(memory_mib=16161), 16160)
    assert caught.value.user_message == (
        f'Invalid value "16161" for {MEMORY}: must be at most 16160 MiB, the memory of one GPU'
    )
