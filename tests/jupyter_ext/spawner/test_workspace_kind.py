"""A WorkspaceKind of Notebooks v2: what stands in it, and that the pods of its Workspaces are served."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from bitfusion_client.pod.pod_contract import ANNOTATION_STATUS, LABEL_NOTEBOOK
from bitfusion_client.pod.this_pod import ThisPod
from bitfusion_device_plugin.injector.injection.injection_settings import InjectorSettings
from jupyter_ext.spawner.presets import presets
from jupyter_ext.spawner.sizes import SizeList, example, parse_sizes
from jupyter_ext.spawner.workspace_kind import kind_text, preset_id, workspace_kind
from jupyter_ext.spawner.yaml_document import parse_document
from tests.bitfusion_device_plugin.injector.pods import inject
from tests.jupyter_ext.spawner.workspaces import workspace_pod
from tests.support.schemas import validate

IMAGE = "registry.example.com/team/notebook:1.0"
REQUESTS = {"cpu": "2", "memory": "8Gi"}
SETTINGS = InjectorSettings(gpu_memory_mib=16384)
# A label's value as Kubernetes' selectors take it, with which v2's rules choose among pod configurations.
LABEL_VALUE = re.compile("[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?").fullmatch


def listed(text: str) -> SizeList:
    return parse_sizes(parse_document(text, "sizes.yaml"))


SIZES = listed(example())
KIND = workspace_kind(SIZES, IMAGE, requests=REQUESTS)
CONFIGS = KIND["spec"]["podTemplate"]["options"]["podConfig"]


def config(kind: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [
        value
        for value in kind["spec"]["podTemplate"]["options"]["podConfig"]["values"]
        if value["id"] == name
    ]
    return found  # type: ignore[no-any-return]  # YAML's


def test_a_pod_configuration_for_each_size_and_number_after_one_without_gpus() -> None:
    assert [value["id"] for value in CONFIGS["values"]] == [
        "no-gpu",
        *(f"{key}-x{n}" for key in ("gpu-amount", "gpu-50", "gpu-25", "gpu-8gib") for n in (1, 2, 4, 8)),
    ]
    assert config(KIND, "gpu-50-x2") == {
        "id": "gpu-50-x2",
        "spawner": {
            "displayName": "2 × BITFUSION 50 %",
            "description": "2 GPUs × 50 %",
            "labels": [
                {"key": "cpu", "value": "2"},
                {"key": "memory", "value": "8Gi"},
                {"key": "gpu", "value": "2x0.5"},
            ],
        },
        "spec": {"resources": {"requests": REQUESTS, "limits": {"bitfusion.io/gpu-50": "2"}}},
    }
    without = config(KIND, "no-gpu")
    assert without["spec"] == {"resources": {"requests": REQUESTS}}
    assert "gpu" not in [label["key"] for label in without["spawner"]["labels"]]


def test_labels_are_such_as_rules_of_v2_can_choose_by() -> None:
    labels = [label for value in CONFIGS["values"] for label in value["spawner"]["labels"]]
    assert all(LABEL_VALUE(label["value"]) for label in labels), labels
    shown = [label["value"] for label in labels if label["key"] == "gpu"]
    assert len(set(shown)) == len(shown) == 16
    assert {"1", "0.5", "8x0.25", "1x8Gi"} <= set(shown)


def test_no_gpu_is_preselected_unless_a_size_is() -> None:
    assert CONFIGS["spawner"]["default"] == "no-gpu"
    kind = workspace_kind(listed("sizes:\n- {label: B, share: 50 %, default: true, gpus: 2}"), IMAGE, (1, 2))
    assert kind["spec"]["podTemplate"]["options"]["podConfig"]["spawner"]["default"] == "gpu-50-x2"


def test_without_amounts_nothing_is_asked_for_but_gpus() -> None:
    kind = workspace_kind(listed("sizes:\n- {label: B}"), IMAGE, (1,))
    assert config(kind, "no-gpu") == {
        "id": "no-gpu",
        "spawner": {"displayName": "No GPU", "description": "JupyterLab computes on the CPU"},
        "spec": {},
    }
    assert config(kind, "gpu-amount-x1")["spec"] == {
        "resources": {"limits": {"bitfusion.io/gpu-amount": "1"}}
    }


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        (IMAGE, "notebook:1.0"),
        ("notebook", "notebook"),
        ("localhost:5000/team/nb@sha256:" + "0" * 64, "nb"),
        ("team/n", "team/n"),  # v2 displays no single letter
        ("team/notebook:" + "t" * 128, "t" * 128),  # nor more than 128 of them
        (f"{'p' * 254}/{'q' * 254}/n", f"{'q' * 126}/n"),
    ],
)
def test_the_image_is_offered_by_its_last_name(image: str, shown: str) -> None:
    kind = workspace_kind(SIZES, image)
    images = kind["spec"]["podTemplate"]["options"]["imageConfig"]
    (value,) = images["values"]
    assert images["spawner"]["default"] == value["id"] == value["spawner"]["displayName"] == shown
    assert value["spec"] == {"image": image, "ports": [{"id": "jupyterlab", "port": 8888}]}


def test_the_text_is_the_object_without_aliases() -> None:
    text = kind_text(KIND, "sizes.yaml")
    assert yaml.safe_load(text) == KIND
    assert "&id" not in text
    head = "# Written by `kubeflow-bitfusion workspacekind` from a?b: edit that list and run it again."
    assert kind_text(KIND, "a\nb").splitlines()[0] == head


def test_every_name_of_the_longest_label_has_room() -> None:
    kind = workspace_kind(listed(f"sizes:\n- {{label: {'B' * 60}}}"), IMAGE, (1024,))
    for value in kind["spec"]["podTemplate"]["options"]["podConfig"]["values"]:
        assert 2 <= len(value["spawner"]["displayName"]) <= 128
        assert 2 <= len(value["spawner"]["description"]) <= 1024


EVERY = [preset for group in presets(SIZES) for preset in group]


@pytest.mark.parametrize("preset", EVERY, ids=preset_id)
def test_the_pod_of_a_workspace_is_served_by_the_injector(preset: Any) -> None:
    pod = workspace_pod(KIND, preset_id(preset))
    validate(pod)
    after = inject(pod, settings=SETTINGS)
    validate(after)
    (container,) = after["spec"]["containers"]
    share = {"bitfusion.io/gpu-amount": 100, "bitfusion.io/gpu-25": 25}.get(preset.size.key, 50)
    assert container["resources"]["limits"] == {"bitfusion.io/gpu": str(share * preset.number)}
    assert container["resources"]["requests"] == REQUESTS
    assert "command" not in container
    assert "/usr/local/bin/bitfusion" in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_without_gpus_the_pod_is_left_as_it_is() -> None:
    pod = workspace_pod(KIND, "no-gpu")
    assert inject(pod) == pod


def test_the_pool_shows_the_pod_of_the_workspace() -> None:
    metadata = workspace_pod(KIND, "gpu-50-x1")["metadata"]
    notebook = metadata["labels"].get(LABEL_NOTEBOOK, "")
    assert ThisPod(metadata["name"], "ann", notebook, "main", "", "").place == "ann/ws-mine-x7k2p-0"


def test_annotations_of_a_workspace_reach_the_injector() -> None:
    request = {"bitfusion.io/request": "-n 3 -p 0.25"}
    (container,) = inject(workspace_pod(KIND, "gpu-50-x1", annotations=request))["spec"]["containers"]
    assert container["resources"]["limits"]["bitfusion.io/gpu"] == "75"
    left_alone = inject(workspace_pod(KIND, "gpu-50-x1", annotations={"auto-management/bitfusion": "none"}))
    assert ANNOTATION_STATUS not in left_alone["metadata"]["annotations"]


def test_a_size_of_several_gpus_is_one_pod_configuration() -> None:
    kind = workspace_kind(listed("sizes:\n- {label: B 3 × 50 %, share: 50 %, number: 3}"), IMAGE)
    _, three = kind["spec"]["podTemplate"]["options"]["podConfig"]["values"]
    assert three["id"] == "gpu-3x50-x1"
    assert three["spawner"]["labels"] == [{"key": "gpu", "value": "3x0.5"}]
    (container,) = inject(workspace_pod(kind, "gpu-3x50-x1"))["spec"]["containers"]
    assert container["resources"]["limits"] == {"bitfusion.io/gpu": "150"}
