"""The manifests of identities: no right to any Secret but one, by a namespace's Role; the pool's sample."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bitfusion_device_plugin.identity.events import OTHER_ROLE_FOLDER, ROLE_FOLDERS, role_command
from bitfusion_device_plugin.identity.settings import PROGRAM
from tests.cluster.cluster import Cluster
from tests.manifests.built import MANIFESTS, NAMESPACES
from tests.support.machine import scaled
from tests.support.objects import objects_of
from tests.support.ports import free_port
from tests.support.schemas import validate

FOLDERS = (
    *("identity/kubeflow", "identity/standalone", "namespace/kubeflow", "namespace/standalone"),
    "samples/pool",
)
Objects = list[dict[str, Any]]


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> dict[str, Objects]:
    return {folder: objects_of(cluster.kubectl("kustomize", str(MANIFESTS / folder))) for folder in FOLDERS}


def rights(objects: Objects, kind: str) -> set[tuple[str, str, str, str]]:
    """API group, resource, name and verb of every right."""
    return {
        (group, resource, name, verb)
        for one in objects
        if one["kind"] == kind
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def of_kind(objects: Objects, kind: str) -> dict[str, Any]:
    (only,) = [one for one in objects if one["kind"] == kind]
    return only


@pytest.mark.parametrize("version", ["1.25", "1.34", "1.37"])  # each takes a second to load
def test_every_object_fits_the_schemas(built: dict[str, Objects], version: str) -> None:
    for objects in built.values():
        for one in objects:
            validate(one, version)


@pytest.mark.parametrize("overlay", ["kubeflow", "standalone"])
def test_the_controller_has_no_right_to_any_secret_of_the_cluster(
    built: dict[str, Objects], overlay: str
) -> None:
    objects = built[f"identity/{overlay}"]
    assert rights(objects, "ClusterRole") == {
        ("", "namespaces", "", "list"),
        ("", "namespaces", "", "watch"),
        ("", "resourcequotas", "", "list"),
        ("", "resourcequotas", "", "watch"),
        ("", "events", "", "create"),
        ("rbac.authorization.k8s.io", "clusterroles", "bitfusion-identity", "get"),
    }
    leases = "coordination.k8s.io", "leases"
    assert rights(objects, "Role") == {
        (*leases, "", "create"),
        (*leases, "bitfusion-identity", "get"),
        (*leases, "bitfusion-identity", "patch"),
    }
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        subjects = of_kind(objects, kind)["subjects"]
        assert subjects == [
            {"kind": "ServiceAccount", "name": "bitfusion-identity", "namespace": NAMESPACES[overlay]}
        ]


@pytest.mark.parametrize("overlay", ["kubeflow", "standalone"])
def test_a_namespaces_role_is_for_its_one_secret_and_the_controller_of_that_overlay(
    built: dict[str, Objects], overlay: str
) -> None:
    objects = built[f"namespace/{overlay}"]
    assert {one["kind"] for one in objects} == {"Role", "RoleBinding"}
    assert all("namespace" not in one["metadata"] for one in objects)
    assert rights(objects, "Role") == {
        ("", "secrets", "", "create"),
        *(("", "secrets", "bitfusion-client", verb) for verb in ("get", "patch", "delete")),
    }
    (subject,) = of_kind(objects, "RoleBinding")["subjects"]
    assert subject["namespace"] == NAMESPACES[overlay]


def test_the_command_that_cures_a_missing_role_names_a_folder_that_is_there() -> None:
    for folder in (*ROLE_FOLDERS.values(), OTHER_ROLE_FOLDER):
        assert (MANIFESTS.parent / folder / "kustomization.yaml").is_file()
    assert role_command("team-a", "kubeflow").endswith("--namespace team-a -k manifests/namespace/kubeflow")
    assert role_command("team-a", "bitfusion-system").endswith("-k manifests/namespace/standalone")


@pytest.mark.parametrize(
    ("folder", "level"), [("identity/kubeflow", "restricted"), ("samples/pool", "baseline")]
)
def test_its_pods_fit_pod_security(
    cluster: Cluster, built: dict[str, Objects], folder: str, level: str
) -> None:
    namespace = cluster.new_namespace({"pod-security.kubernetes.io/enforce": level})
    spec = dict(
        of_kind(built[folder], "Deployment")["spec"]["template"]["spec"], serviceAccountName="default"
    )
    pod = {"metadata": {"name": "pod"}, "spec": spec}
    cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")


def test_the_deployments_arguments_are_settings_of_the_command(built: dict[str, Objects]) -> None:
    spec = of_kind(built["identity/kubeflow"], "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["command"] == ["bitfusion-identity"]
    settings = PROGRAM.settings_of(container["args"], {"BITFUSION_IDENTITY_NAMESPACE": "kubeflow"})
    assert [env["name"] for env in container["env"]] == ["BITFUSION_IDENTITY_NAMESPACE"]
    assert settings.issuer_files == container["volumeMounts"][0]["mountPath"]
    assert settings.monitoring_port == container["ports"][0]["containerPort"]
    (volume,) = spec["volumes"]
    assert volume["secret"] == {"secretName": "bitfusion-issuer", "optional": True, "defaultMode": 0o440}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A volume as some provisioners make it: everybody may write to it."""
    path = tmp_path / "volume"
    path.mkdir()
    path.chmod(0o777)
    return path


def test_the_samples_pool_starts_in_a_volume_of_everybodys_and_starts_again(
    built: dict[str, Objects], volume: Path, tmp_path: Path
) -> None:
    """Its containers' commands, one after another, at another path and port."""
    spec = of_kind(built["samples/pool"], "Deployment")["spec"]["template"]["spec"]
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "bitfusion-pool").write_text(
        f'#!/bin/sh\ncd {MANIFESTS.parent} && exec {sys.executable} -m bitfusion_pool.admin.cli "$@"\n'
    )
    (tools / "bitfusion-pool").chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin"}
    port = free_port()

    def words(container: dict[str, Any]) -> list[str]:
        given = [*container["command"], *container.get("args", ())]
        return [
            word.replace("/var/lib/bitfusion-pool", str(volume)).replace(":56001", f":{port}")
            for word in given
        ]

    for told in ("certificate for bitfusion-pool.bitfusion-pool.svc", "the certificate is not due yet"):
        said = ""
        for container in spec["initContainers"]:
            done = subprocess.run(
                words(container), env=environment, capture_output=True, text=True, timeout=scaled(30)
            )
            assert (done.returncode, done.stderr) == (0, "")
            said += done.stdout
        assert told in said
        serving = subprocess.Popen(
            words(spec["containers"][0]), env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            assert serving.stderr is not None
            line = next(line for line in serving.stderr if '"service started"' in line or "Error" in line)
            assert re.search(r'"simulated": true', line), line
        finally:
            serving.send_signal(signal.SIGTERM)
            serving.communicate(timeout=scaled(30))
        assert serving.returncode == 0
    (outside,) = of_kind(built["samples/pool"], "Service")["spec"]["ports"]
    assert (outside["port"], spec["containers"][0]["ports"][0]["containerPort"]) == (56001, 56001)
