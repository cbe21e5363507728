"""Which resources are sizes, and which annotations are carried."""

from __future__ import annotations

from bitfusion_client.kubernetes_names import carried_annotations, is_carried_annotation, is_size_resource

AMOUNT = "bitfusion.io/gpu-amount"


def test_names() -> None:
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
    assert [name for name in names if is_carried_annotation(name)] == list(names[:3])


def test_carried_annotations() -> None:
    annotations = {
        "auto-management/bitfusion": "injection",
        "bitfusion-client/os": "ubuntu22",
        "bitfusion.io/request": "-n 1",
        "bitfusion.io/pending": "x",
        "notebooks.kubeflow.org/creator": "a",
    }
    assert carried_annotations(annotations) == {
        "auto-management/bitfusion": "injection",
        "bitfusion-client/os": "ubuntu22",
        "bitfusion.io/request": "-n 1",
    }
    assert carried_annotations(None) == {}
