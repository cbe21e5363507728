"""The health check's manifests as they are built, with VMware's client, too: who finds what where."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bitfusion_client.pod.pod_contract import (
    CA_KEY,
    CLIENT_FOLDER,
    IDENTITY_PATH,
    IDENTITY_SECRET,
    INIT_CONTAINER,
    INSTALL_COMMAND,
    PACKAGES_CONTAINER,
    PACKAGES_FOLDER,
    PACKAGES_IN_IMAGE,
    SERVERS_KEY,
    TOKEN_KEY,
    VMWARE,
    VMWARE_TLS_PATH,
    VOLUME_PATH,
)
from bitfusion_pool.access.network_files import SYSTEM_FOLDER
from tests.cluster.cluster import Cluster
from tests.manifests.built import MANIFESTS, Objects, one
from tests.support.machine import scaled
from tests.support.objects import objects_of
from tests.support.run_blocks import ran
from tests.support.schemas import validate

NAME = "bitfusion-health"
PLAIN, WITH_VMWARE = "plain", "vmware"
PAGE = (MANIFESTS.parent / "docs" / "how-to" / "health-check.md").read_text(encoding="utf-8")
each_client = pytest.mark.parametrize("client", [PLAIN, WITH_VMWARE])


@pytest.fixture(scope="module")
def built(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Objects]:
    """By client."""
    found = {}
    for client, components in {PLAIN: [], WITH_VMWARE: ["health-check-vmware"]}.items():
        folder = tmp_path_factory.mktemp(client)
        manifests = os.path.relpath(MANIFESTS, os.path.realpath(folder))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{manifests}/samples/monitoring/health-check"],
            "components": [f"{manifests}/components/{component}" for component in components],
        }
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        text = cluster.kubectl("kustomize", str(folder))
        found[client] = objects_of(text)
    return found


def template(objects: Objects) -> dict[str, Any]:
    job: dict[str, Any] = one(objects, "CronJob", NAME)["spec"]["jobTemplate"]["spec"]
    return dict(job["template"])


def mounts(container: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in container["volumeMounts"]}


@each_client
@pytest.mark.parametrize("version", ["1.25", "1.34", "1.37"])  # each takes a second to load
def test_every_object_fits_the_schemas(built: dict[str, Objects], client: str, version: str) -> None:
    for item in built[client]:
        validate(item, version)


@each_client
def test_its_pod_fits_pod_security_restricted(
    cluster: Cluster, built: dict[str, Objects], client: str
) -> None:
    namespace = cluster.new_namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    spec = dict(template(built[client])["spec"], serviceAccountName="default")
    pod = {"metadata": {"name": "pod"}, "spec": spec}
    cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")


@each_client
def test_its_client_finds_its_files(built: dict[str, Objects], client: str) -> None:
    spec = template(built[client])["spec"]
    (container,) = spec["containers"]
    (secret,) = (volume for volume in spec["volumes"] if "secret" in volume)
    # Neither it nor a key is optional: a stand-in without files would check a pool of its own.
    files = [{"key": key, "path": key} for key in (SERVERS_KEY, TOKEN_KEY, CA_KEY)]
    assert secret["secret"] == {"secretName": IDENTITY_SECRET, "defaultMode": 0o440, "items": files}
    places = {path for path, mount in mounts(container).items() if mount["name"] == secret["name"]}
    assert places == ({IDENTITY_PATH, VMWARE_TLS_PATH} if client == WITH_VMWARE else {SYSTEM_FOLDER})
    assert all(mounts(container)[path]["readOnly"] for path in places)


def test_vmwares_client_comes_as_the_injector_brings_it(built: dict[str, Objects]) -> None:
    spec = template(built[WITH_VMWARE])["spec"]
    (container,) = spec["containers"]
    install, packages = spec["initContainers"]
    assert (install["name"], packages["name"]) == (INIT_CONTAINER, PACKAGES_CONTAINER)
    assert tuple(install["command"]) == INSTALL_COMMAND
    volume, folder, _, units, kind, package = install["args"]
    assert (volume, kind, units, package) == (VOLUME_PATH, VMWARE, "0", "PACKAGE")
    target = f"{volume}/{folder}/{PACKAGES_FOLDER}/"
    assert packages["command"] == ["cp", "-a", f"{PACKAGES_IN_IMAGE}/.", target]
    client = mounts(container)[CLIENT_FOLDER]
    assert (client["subPath"], client["readOnly"]) == (folder, True)
    for each in (install, packages):
        assert mounts(each)[volume]["name"] == client["name"]


@pytest.mark.runs("docs/how-to/health-check.md#With VMware's product")
def test_the_pages_commands_make_both(cluster: Cluster, tmp_path: Path) -> None:
    """As they stand there, but for the applying."""
    install, _, with_vmware = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    applied = "kubectl apply -k my-health-check\n"
    environ = {**os.environ, "REGISTRY": "registry.test/team", "PACKAGE": "the-package_1.deb"}
    (tmp_path / "manifests").symlink_to(MANIFESTS)
    found = []
    for block in (install, with_vmware):
        assert block.endswith(applied)
        subprocess.run(
            ["sh", "-euc", block.removesuffix(applied)],
            cwd=tmp_path,
            env=environ,
            check=True,
            timeout=scaled(30),
        )
        text = cluster.kubectl("kustomize", str(tmp_path / "my-health-check"))
        ran(block)
        found.append(template(objects_of(text))["spec"])
    plain, vmware = found
    assert plain["containers"][0]["image"] == "registry.test/team/notebook-controller:0.1.0"
    assert vmware["containers"][0]["image"] == plain["containers"][0]["image"]
    assert [each["image"] for each in vmware["initContainers"]] == [
        *("registry.test/team/client:0.1.0", "registry.test/team/bitfusion-client-ubuntu2204:454"),
    ]
    assert vmware["initContainers"][0]["args"][-1] == "the-package_1.deb"


@each_client
def test_the_pod_monitor_and_the_policy_find_its_pods(built: dict[str, Objects], client: str) -> None:
    labels = template(built[client])["metadata"]["labels"]
    monitor = yaml.safe_load((MANIFESTS / "samples/monitoring/pod-monitor.yaml").read_text())
    policy = one(built[client], "NetworkPolicy", NAME)
    for selector in (monitor["spec"]["selector"], policy["spec"]["podSelector"]):
        assert selector["matchLabels"].items() <= labels.items()
