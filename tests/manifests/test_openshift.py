"""Component `openshift`: no pod of ours asks for what OpenShift's constraints *restricted-v2* refuse.

The constraints are those that OpenShift documents; no OpenShift is here to be asked. Pod Security is the API
server's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.manifests.built import Object, Objects, build_own, of_kind
from tests.support.schemas import validate

# https://docs.openshift.com/container-platform/latest/authentication/managing-security-context-constraints.html
VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
GIVEN = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "seLinuxOptions")  # by OpenShift
HOST = ("hostNetwork", "hostPID", "hostIPC")

FOLDERS: Mapping[str, tuple[list[str], list[str], set[str]]] = {
    "kubeflow": (
        ["overlays/kubeflow", "identity/kubeflow"],
        ["restrict-account", "queue"],
        {"bitfusion-notebook-controller", "bitfusion-injector", "bitfusion-identity", "bitfusion-queue"},
    ),
    "cert-manager": (
        ["overlays/cert-manager"],
        [],
        {"bitfusion-notebook-controller", "bitfusion-injector"},
    ),
    "standalone": (
        ["overlays/standalone", "identity/standalone"],
        ["queue-without-policies"],
        {"bitfusion-notebook-controller", "bitfusion-injector", "bitfusion-identity", "bitfusion-queue"},
    ),
    "pool": (["samples/pool"], [], {"bitfusion-pool"}),
    "health check": (["samples/monitoring/health-check"], [], {"bitfusion-health"}),
    "health check, vmware": (
        ["samples/monitoring/health-check"],
        ["health-check-vmware"],
        {"bitfusion-health"},
    ),
}

each_folder = pytest.mark.parametrize("folder", FOLDERS)


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> Mapping[str, Objects]:
    return {
        name: build_own(cluster, resources, [*components, "openshift"])
        for name, (resources, components, _) in FOLDERS.items()
    }


def pods(objects: Objects) -> Iterator[tuple[str, Object]]:
    """The spec of every pod, by the name of what makes it."""
    for each in of_kind(objects, "Deployment"):
        yield each["metadata"]["name"], each["spec"]["template"]["spec"]
    for each in of_kind(objects, "CronJob"):
        yield each["metadata"]["name"], each["spec"]["jobTemplate"]["spec"]["template"]["spec"]


@each_folder
def test_every_pod_is_as_restricted_v2_wants_it(built: Mapping[str, Objects], folder: str) -> None:
    found = dict(pods(built[folder]))
    assert set(found) == FOLDERS[folder][2]
    for name, spec in found.items():
        own: dict[str, Any] = spec["securityContext"]
        assert own == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}, name
        assert not set(HOST) & set(spec)
        assert {next(key for key in each if key != "name") for each in spec.get("volumes", ())} <= VOLUMES
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            security = container["securityContext"]
            assert not set(GIVEN) & set(security)
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert not any("hostPort" in each for each in container.get("ports", ()))


@each_folder
def test_the_api_servers_restricted_takes_it(
    cluster: Cluster, built: Mapping[str, Objects], folder: str
) -> None:
    namespace = cluster.new_namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    for name, spec in pods(built[folder]):
        spec = {
            key: value
            for key, value in spec.items()
            if key not in ("serviceAccountName", "priorityClassName")
        }
        body = {"metadata": {"name": name}, "spec": spec}
        cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", body, dryRun="All")


@each_folder
def test_every_object_fits_the_schemas(built: Mapping[str, Objects], folder: str) -> None:
    for each in built[folder]:
        if not each["apiVersion"].startswith("cert-manager.io/"):
            validate(each)


@each_folder
def test_nothing_but_users_and_groups_changes(
    cluster: Cluster, built: Mapping[str, Objects], folder: str
) -> None:
    resources, components, _ = FOLDERS[folder]
    plain = build_own(cluster, resources, components)
    for _, spec in pods(plain):
        for name in ("runAsUser", "runAsGroup", "fsGroup"):
            assert spec["securityContext"].pop(name) == 65532
        if folder == "pool":
            # root.s, which OpenShift refuses
            assert spec["initContainers"].pop(0)["securityContext"]["runAsUser"] == 0
    assert built[folder] == plain
