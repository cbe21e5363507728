"""Pods with a client of the kind `pods` on a real API server, where *restricted* holds: they count 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.gpu_pods.settings import settings_from_text
from bitfusion_client.kubernetes.pod_units import units_of
from tests.bitfusion_device_plugin.injector.another_webhook import another_webhook, like_istio
from tests.bitfusion_device_plugin.injector.pods import container, mounts, named, pod
from tests.bitfusion_device_plugin.injector.random_pods import RESTRICTED
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE, Room
from tests.notebook_controller_patch.controller_process import INJECTOR
from tests.notebook_controller_patch.installation import Installation
from tests.support.waiting import wait_until

KEY = "bitfusion.io/gpu"
ENFORCED = {**PROFILE, "pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture(scope="module")
def room(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A user's namespace, beside an injector that the API server calls; its gates are not for these."""
    folder = tmp_path_factory.mktemp("injector")
    clients, pods = folder / "clients.yaml", folder / "pods.yaml"
    clients.write_text('[{os: "*", version: "*", kind: pods}]')
    pods.write_text("port: 7001")
    with Installation(cluster, folder, name="bitfusion-injector", module=INJECTOR) as installation:
        installation.started(
            *("--gates=on", f"--clients={clients}", f"--pods={pods}"),
            *("--gpu-nodes=nvidia.com/gpu.present=true", "--gpu-taint=nvidia.com/gpu"),
        )
        found = Room(cluster, ENFORCED)
        wait_until(
            lambda: create(found, asking(), dryRun="All")["spec"].get("initContainers"),
            "the webhook is called",
            20,
            errors=(Refused,),
        )
        yield found


def asking(**spec: Any) -> Object:
    made = container({"bitfusion.io/gpu-50": "1"}, securityContext={**RESTRICTED, "runAsUser": 1000})
    return pod(made, **spec)


def create(room: Room, made: Object, **query: Any) -> Object:
    return room.client.create(room.pods, made, **query)


def test_it_is_let_in_and_waits_for_nothing_of_ours(room: Room) -> None:
    made = create(room, asking(), dryRun="All")
    spec = made["spec"]
    assert units_of(made) == 0
    assert KEY not in json.dumps([each["resources"] for each in spec["containers"] + spec["initContainers"]])
    assert "schedulingGates" not in spec
    assert named(spec["volumes"], "bitfusion-client")["emptyDir"] == {"sizeLimit": "256Mi"}
    assert ("bitfusion-client", "/bitfusion", "nb") in mounts(spec["containers"][0])
    variables = spec["initContainers"][0]["env"]
    assert settings_from_text(named(variables, "BITFUSION_PODS")["value"]).port == 7001
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]
    assert "nvidia.com/gpu.present" in json.dumps(spec["affinity"])


def test_the_pass_after_another_webhook_makes_no_second_client(room: Room, tmp_path: Path) -> None:
    other = Room(room.cluster)  # a mesh's containers are not let in where *restricted* holds
    with another_webhook(room.cluster, other, "zz-mesh", tmp_path, like_istio):
        made = wait_until(lambda: _meshed(create(other, asking(), dryRun="All")), "the other webhook", 20)
    spec = made["spec"]
    names = [each["name"] for each in spec["volumes"] + spec["initContainers"]]
    assert names.count("bitfusion-client") == 2  # the volume and the container
    assert len(spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]) == 1
    assert units_of(made) == 0


def _meshed(made: Object) -> Object | None:
    return made if len(made["spec"]["containers"]) > 1 else None


def test_a_limit_range_of_units_does_not_keep_it_waiting(room: Room) -> None:
    """Its default is put into what says nothing, before our pass and after it."""
    path = f"/api/v1/namespaces/{room.namespace}/limitranges"
    limit = {"type": "Container", "default": {KEY: "100"}, "defaultRequest": {KEY: "100"}}
    room.client.create(path, {"metadata": {"name": "units"}, "spec": {"limits": [limit]}})
    try:
        made = wait_until(lambda: _with_units(create(room, asking(), dryRun="All")), "the LimitRange", 20)
    finally:
        room.client.delete(f"{path}/units")
    assert units_of(made) == 0


def _with_units(made: Object) -> Object | None:
    return made if KEY in made["spec"]["containers"][0]["resources"].get("limits", {}) else None


def test_a_gpu_pod_is_not_asked_about(room: Room) -> None:
    injected = create(room, asking(), dryRun="All")["spec"]
    spec: Object = {
        "volumes": _ours(injected["volumes"]),
        "initContainers": [{**injected["initContainers"][0]}],
        "containers": [{**injected["containers"][0], "name": "program"}],
    }
    for one in spec["initContainers"] + spec["containers"]:
        one["volumeMounts"] = _ours(one["volumeMounts"])
    labels = {"bitfusion.io/gpu-pod-of": "some-uid"}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gpu", "labels": labels}, "spec": spec}
    answer = create(room, made, dryRun="All")
    assert answer["metadata"].get("annotations") is None
    assert "affinity" not in answer["spec"]


def _ours(items: list[Object]) -> list[Object]:
    return [each for each in items if each["name"].startswith("bitfusion")]
