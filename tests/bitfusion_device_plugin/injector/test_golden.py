"""The pod of a Kubeflow 1.11 notebook before and after, word by word."""

from __future__ import annotations

import json

import pytest

from bitfusion_device_plugin.injector.injection.injection_settings import DEFAULT_SETTINGS
from tests.bitfusion_device_plugin.injector import golden
from tests.bitfusion_device_plugin.injector.pods import inject

LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io~1safe-to-evict-local-volumes"


def test_the_pods_of_the_version_before() -> None:
    assert golden.FILE.read_text(encoding="utf-8") == golden.text(), golden.__doc__


@pytest.mark.parametrize("kind", ["stand-in", "vmware", "pods"])
def test_the_second_pass_over_the_golden_pod_is_empty(kind: str) -> None:
    stored = json.loads(golden.FILE.read_text(encoding="utf-8"))
    settings = {"stand-in": DEFAULT_SETTINGS, "vmware": golden.PRODUCT, "pods": golden.PODS}[kind]
    assert inject(stored["before"], settings=settings, namespace="ada") == stored[kind]["after"]
    assert inject(stored[kind]["after"], settings=settings, namespace="ada") == stored[kind]["after"]


def test_the_patch_has_one_operation_for_each_change() -> None:
    patch = json.loads(golden.FILE.read_text(encoding="utf-8"))["stand-in"]["patch"]
    resources = "/spec/containers/0/resources"
    assert [(operation["op"], operation["path"]) for operation in patch] == [
        ("add", "/metadata/annotations/auto-management~1status"),
        ("add", f"/metadata/annotations/{LOCAL_VOLUMES}"),
        ("add", f"{resources}/limits/bitfusion.io~1gpu"),
        ("remove", f"{resources}/limits/bitfusion.io~1gpu-50"),
        ("add", f"{resources}/requests/bitfusion.io~1gpu"),
        ("remove", f"{resources}/requests/bitfusion.io~1gpu-50"),
        *(("add", f"/spec/containers/0/volumeMounts/{place}") for place in (3, 4, 5)),
        ("add", "/spec/initContainers"),
        *(("add", f"/spec/volumes/{place}") for place in (3, 4)),
    ]
