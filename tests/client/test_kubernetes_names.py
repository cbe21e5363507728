"""Which resources are sizes."""

from __future__ import annotations

from bitfusion_client.kubernetes.names import is_size_resource

AMOUNT = "bitfusion.io/gpu-amount"


def test_names() -> None:
    assert [
        name for name in (AMOUNT, "bitfusion.io/gpu-x", "bitfusion.io/gpu", "cpu") if is_size_resource(name)
    ] == [
        AMOUNT,
        "bitfusion.io/gpu-x",
    ]
