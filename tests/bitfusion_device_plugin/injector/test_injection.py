"""From a pod that asks to the pod with the client: what is written, where, and what is left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bitfusion_device_plugin.injector.injection.injected_pod import injected_pod
from tests.bitfusion_device_plugin.injector.pods import (
    AMOUNT,
    HALF,
    INJECTION,
    MANAGEMENT,
    PERCENT,
    UNITS,
    WRITTEN,
    container,
    inject,
    mounts,
    named,
    pod,
)


def test_the_ordinary_pod_of_a_notebook() -> None:
    before = pod(
        container({HALF: "2"}, volumeMounts=[{"name": "home", "mountPath": "/home/jovyan"}]),
        notebook="nb",
        volumes=[{"name": "home", "emptyDir": {}}],
        securityContext={"fsGroup": 100},
    )
    after = inject(before)
    assert after["metadata"]["annotations"] == {**INJECTION, **WRITTEN}
    (notebook,) = after["spec"]["containers"]
    assert notebook["resources"] == {
        "limits": {"cpu": "600m", "memory": "1288490188800m", UNITS: "100"},
        "requests": {"cpu": "500m", "memory": "1Gi", UNITS: "100"},
    }
    assert notebook["volumeMounts"] == [
        {"name": "home", "mountPath": "/home/jovyan"},
        {"name": "bitfusion-client", "mountPath": "/bitfusion", "subPath": "nb", "readOnly": True},
        {
            "name": "bitfusion-client",
            "mountPath": "/usr/local/bin/bitfusion",
            "subPath": "nb/bin/bitfusion",
            "readOnly": True,
        },
        {"name": "bitfusion-identity", "mountPath": "/bitfusion/identity", "readOnly": True},
    ]
    assert "env" not in notebook
    assert "command" not in notebook
    assert after["spec"]["volumes"] == [
        {"name": "home", "emptyDir": {}},
        {"name": "bitfusion-client", "emptyDir": {"sizeLimit": "256Mi"}},
        {"name": "bitfusion-identity", "secret": {"secretName": "bitfusion-client", "optional": True}},
    ]
    (init,) = after["spec"]["initContainers"]
    assert init == {
        "name": "bitfusion-client",
        "image": "kubeflow-bitfusion/client:0.1.0",
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "command": ["/bitfusion-image/bin/sh", "/bitfusion-image/install"],
        "args": ["/bitfusion-volume", "nb", "-n 2 -p 0.5", "100", "stand-in", ""],
        "env": [
            {"name": "BITFUSION_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "BITFUSION_POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            },
            {"name": "BITFUSION_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
            {
                "name": "BITFUSION_NOTEBOOK",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['notebook-name']"}},
            },
        ],
        "resources": {
            "limits": {"cpu": "600m", "memory": "1288490188800m"},
            "requests": {"cpu": "500m", "memory": "1Gi"},
        },
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "bitfusion-client", "mountPath": "/bitfusion-volume"}],
    }


@pytest.mark.parametrize(
    ("annotations", "sizes"),
    [
        (INJECTION, {}),
        (INJECTION, {"nvidia.com/gpu": "1"}),
        ({MANAGEMENT: "none"}, {HALF: "1"}),
        ({MANAGEMENT: "None"}, {HALF: "1"}),
        ({MANAGEMENT: "off"}, {HALF: "1"}),
        ({"kubernetes.io/config.mirror": "x", **INJECTION}, {HALF: "1"}),
        (None, {UNITS: "100"}),
    ],
)
def test_a_pod_that_is_left_alone(annotations: Any, sizes: dict[str, Any]) -> None:
    before = pod(container(sizes), annotations=annotations)
    assert injected_pod(before, "ann") is before


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "kube-node-lease"])
def test_the_namespace_of_the_request_counts(namespace: str) -> None:
    before = pod(container({HALF: "1"}))
    before["metadata"]["namespace"] = "ann"
    assert injected_pod(before, namespace) is before


def test_two_containers_that_ask_have_a_request_and_a_folder_each() -> None:
    before = pod(
        container({HALF: "1"}, "one"), container(name="two"), container({AMOUNT: "2", PERCENT: "25"}, "three")
    )
    spec = inject(before)["spec"]
    assert spec["initContainers"][0]["args"][1:] == [
        *("one", "-n 1 -p 0.5", "50", "stand-in", ""),
        *("three", "-n 2 -p 0.25", "50", "stand-in", ""),
    ]
    assert mounts(named(spec["containers"], "one"))[0] == ("bitfusion-client", "/bitfusion", "one")
    assert mounts(named(spec["containers"], "three"))[0] == ("bitfusion-client", "/bitfusion", "three")
    assert named(spec["containers"], "two") == container(name="two")
    assert named(spec["volumes"], "bitfusion-client")["emptyDir"] == {"sizeLimit": "512Mi"}


@pytest.mark.parametrize("name", [None, [], {}, 5, "", "Ü", "../x", "a/b", "a" * 64])
def test_a_container_whose_name_the_api_refuses_is_left_to_the_api(name: Any) -> None:
    before = pod(container({HALF: "1"}))
    before["spec"]["containers"][0]["name"] = name
    assert injected_pod(before, "ann") is before
    beside = inject(pod(container({HALF: "1"}), {**container(), "name": name}))
    assert beside["spec"]["containers"][1] == {**container(), "name": name}


def test_what_all_pods_share_stays_as_it_is() -> None:
    """Parts of the client's containers and volumes are made once; no pod may leave a trace in them."""
    first = json.dumps(inject(pod(container({HALF: "1"}), notebook="nb")))
    inject(pod(container({HALF: "1"}, securityContext={"runAsUser": 1000}), securityContext={"runAsUser": 7}))
    inject(inject(pod(container({HALF: "2"}), container({AMOUNT: "1"}, name="other"))))
    assert json.dumps(inject(pod(container({HALF: "1"}), notebook="nb"))) == first
