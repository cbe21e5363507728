"""The manifests of the device plugin: one folder of the node, no capability, no right to anything."""

from __future__ import annotations

import copy
from collections.abc import Mapping
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
from bitfusion_device_plugin.identity.limits import LIMIT_PREFIX, LimitRules, namespace_limits
from bitfusion_device_plugin.identity.served import LABEL_IDENTITY, SERVED
from bitfusion_device_plugin.plugin.settings import CLASSIC, PROGRAM, WATCHER, Settings
from bitfusion_pool.access.network_files import SYSTEM_FOLDER
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.cluster.guide import yaml_block
from tests.manifests.built import MANIFESTS, NAMESPACES, Object, Objects, build_own, of_kind, one
from tests.support.schemas import validate

NAME = "bitfusion-device-plugin"
OVERLAYS = ("kubeflow", "standalone")
COMPONENTS = {
    "classic": ("classic",),
    "vmware": ("vmware",),
    "both": ("vmware", "classic"),
    "selinux": ("selinux",),
    "openshift": ("vmware", "openshift"),
}
WITH_VMWARE = ("vmware", "both", "openshift")
WITH_SELINUX = ("selinux", "openshift")
Built = Mapping[str, Objects]


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> Built:
    """By overlay, and overlay `kubeflow` by components."""
    found = {name: build_own(cluster, [f"device-plugin/{name}"]) for name in OVERLAYS}
    for name, components in COMPONENTS.items():
        paths = [f"device-plugin-{each}" for each in components]
        found[name] = build_own(cluster, ["device-plugin/kubeflow"], paths)
    return found


def pod(objects: Objects) -> Object:
    """A copy of what the DaemonSet makes, which a test may spoil."""
    template: Object = copy.deepcopy(one(objects, "DaemonSet", NAME)["spec"]["template"])
    return template


def plugin(objects: Objects) -> Object:
    (only,) = pod(objects)["spec"]["containers"]
    return dict(only)


def settings(objects: Objects) -> Settings:
    container = plugin(objects)
    environ = {each["name"]: each["value"] for each in container["env"]}
    found = PROGRAM.settings_of(container["args"], environ)
    assert isinstance(found, Settings)
    return found


def mounts(container: Object) -> dict[str, Object]:
    return {each["mountPath"]: each for each in container["volumeMounts"]}


every = pytest.mark.parametrize("name", [*OVERLAYS, *COMPONENTS])


@pytest.mark.parametrize("version", ["1.25", "1.34", "1.37"])  # each takes a second to load
def test_every_object_fits_the_schemas(built: Built, version: str) -> None:
    for objects in built.values():
        for each in objects:
            validate(each, version)


@every
def test_all_is_in_a_namespace_of_its_own(built: Built, name: str) -> None:
    for each in built[name]:
        assert each["metadata"].get("namespace", NAME) == NAME
        if each["kind"] not in ("Role", "RoleBinding"):  # those of every namespace that is opted in
            assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "kubeflow-bitfusion"
    labels = one(built[name], "Namespace", NAME)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert labels["bitfusion.io/admission"] == "ignore"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_plugin_has_no_right_and_the_identity_one_secret(built: Built, overlay: str) -> None:
    kinds = sorted(each["kind"] for each in built[overlay])
    assert kinds == ["DaemonSet", "Namespace", "NetworkPolicy", "ResourceQuota", "Role", "RoleBinding"]
    (binding,) = of_kind(built[overlay], "RoleBinding")
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "bitfusion-identity", "namespace": NAMESPACES[overlay]}
    ]
    (role,) = of_kind(built[overlay], "Role")
    names = {each for rule in role["rules"] for each in rule.get("resourceNames", ())}
    assert (names, {each for rule in role["rules"] for each in rule["resources"]}) == (
        {IDENTITY_SECRET},
        {"secrets"},
    )
    spec = pod(built[overlay])["spec"]
    assert "serviceAccountName" not in spec
    assert spec["automountServiceAccountToken"] is False


def test_its_token_is_the_smallest_that_an_identity_gives(built: Built) -> None:
    metadata = one(built["kubeflow"], "Namespace", NAME)["metadata"]
    assert metadata["labels"][LABEL_IDENTITY] == SERVED
    asked = {key: value for key, value in metadata["annotations"].items() if key.startswith(LIMIT_PREFIX)}
    limits, problems = namespace_limits(asked, LimitRules())
    assert (dict(limits), problems) == ({"gpus": 1, "share": 0.01, "leases": 1, "waiting": 1}, ())


@every
def test_of_the_node_it_has_one_folder(built: Built, name: str) -> None:
    found = settings(built[name])
    folder = found.device_plugins if found.registration == CLASSIC else found.plugins_registry
    spec = pod(built[name])["spec"]
    (volume,) = (each for each in spec["volumes"] if "hostPath" in each)
    assert volume["hostPath"] == {"path": folder, "type": "Directory"}
    with_it = [
        (mount["mountPath"], mount.get("subPath"))
        for container in [*spec.get("initContainers", ()), *spec["containers"]]
        for mount in container["volumeMounts"]
        if mount["name"] == volume["name"]
    ]
    assert with_it == [(folder, None)]  # as the kubelet has it: the socket's path is told to it
    others = [set(each) - {"name"} for each in spec["volumes"] if each is not volume]
    assert all(each in ({"secret"}, {"emptyDir"}) for each in others)
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


@every
def test_it_is_root_and_may_nothing_that_root_may(built: Built, name: str) -> None:
    spec = pod(built[name])["spec"]
    selinux = {"seLinuxOptions": {"type": "spc_t"}} if name in WITH_SELINUX else {}
    assert spec["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
        **selinux,
    }
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}


@every
def test_but_for_the_folder_and_the_user_it_is_restricted(cluster: Cluster, built: Built, name: str) -> None:
    """What the API server's own Pod Security says."""

    def dry_run(level: str, spec: Object) -> str:
        namespace = cluster.new_namespace({"pod-security.kubernetes.io/enforce": level})
        path = f"/api/v1/namespaces/{namespace}"
        quota = one(built[name], "ResourceQuota", NAME)
        cluster.client.create(f"{path}/resourcequotas", {"metadata": {"name": NAME}, "spec": quota["spec"]})
        try:
            cluster.client.create(f"{path}/pods", {"metadata": {"name": "pod"}, "spec": spec}, dryRun="All")
        except Refused as refused:
            return str(refused).partition("violates PodSecurity")[2].partition(": ")[2]
        return ""

    spec = pod(built[name])["spec"]
    spec.pop("serviceAccountName", None)  # it is another namespace
    assert dry_run("privileged", spec) == ""
    if name in WITH_SELINUX:
        assert 'seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t")' in dry_run(
            "baseline", spec
        )
        del spec["securityContext"]["seLinuxOptions"]
    assert dry_run("baseline", spec) == 'hostPath volumes (volume "kubelet")'
    for volume in spec["volumes"]:
        if "hostPath" in volume:
            del volume["hostPath"]
            volume["emptyDir"] = {}
    spec["securityContext"].update(runAsUser=65532, runAsNonRoot=True)
    assert dry_run("restricted", spec) == ""


@every
def test_arguments_are_options_of_the_program(built: Built, name: str) -> None:
    container = plugin(built[name])
    assert container["command"] == [NAME]
    found = settings(built[name])
    assert found.registration == (CLASSIC if name in ("classic", "both") else WATCHER)
    assert (found.ignored, found.client, found.units, found.log_format) == ((), None, None, "json")
    (port,) = container["ports"]
    assert port == {"name": "http-monitoring", "containerPort": found.monitoring_port}
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert container[probe]["httpGet"] == {"path": path, "port": "http-monitoring"}
    annotations = pod(built[name])["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(found.monitoring_port)
    assert annotations["prometheus.io/path"] == "/metrics"


@every
def test_its_client_finds_its_files_and_writes_where_it_may(built: Built, name: str) -> None:
    spec, container = pod(built[name])["spec"], plugin(built[name])
    (secret,) = (each for each in spec["volumes"] if "secret" in each)
    # Neither it nor a key is optional: a stand-in without files would compute with a pool of its own.
    files = [{"key": key, "path": key} for key in (SERVERS_KEY, TOKEN_KEY, CA_KEY)]
    assert secret["secret"] == {"secretName": IDENTITY_SECRET, "defaultMode": 0o400, "items": files}
    places = {path for path, mount in mounts(container).items() if mount["name"] == secret["name"]}
    with_vmware = {IDENTITY_PATH, VMWARE_TLS_PATH}
    assert places == (with_vmware if name in WITH_VMWARE else {SYSTEM_FOLDER})
    assert all(
        mounts(container)[path]["readOnly"] and "subPath" not in mounts(container)[path] for path in places
    )
    (home,) = (each["value"] for each in container["env"] if each["name"] == "HOME")
    written = mounts(container)[home]["name"]
    assert [each["emptyDir"] for each in spec["volumes"] if each["name"] == written] == [
        {"sizeLimit": "16Mi"}
    ]


@pytest.mark.parametrize("name", WITH_VMWARE)
def test_vmwares_client_comes_as_the_injector_brings_it(built: Built, name: str) -> None:
    spec, container = pod(built[name])["spec"], plugin(built[name])
    install, packages = spec["initContainers"]
    assert (install["name"], packages["name"]) == (INIT_CONTAINER, PACKAGES_CONTAINER)
    assert tuple(install["command"]) == INSTALL_COMMAND
    volume, folder, _, units, kind, _ = install["args"]
    assert (volume, kind, units.isdigit()) == (VOLUME_PATH, VMWARE, True)
    target = f"{volume}/{folder}/{PACKAGES_FOLDER}/"
    assert packages["command"] == ["cp", "-a", f"{PACKAGES_IN_IMAGE}/.", target]
    client = mounts(container)[CLIENT_FOLDER]
    assert (client["subPath"], client["readOnly"]) == (folder, True)
    for each in (install, packages):
        assert mounts(each)[volume]["name"] == client["name"]


@every
def test_on_every_node_one_and_never_two(built: Built, name: str) -> None:
    spec = one(built[name], "DaemonSet", NAME)["spec"]
    # Of two nodes one may be dead: tests/cluster/test_device_plugin_rollout.py.
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "51%"}
    template = pod(built[name])
    assert template["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert template["spec"]["priorityClassName"] == "system-node-critical"
    assert template["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    for selector in (spec["selector"], one(built[name], "NetworkPolicy", NAME)["spec"]["podSelector"]):
        assert selector == {"matchLabels": {"app.kubernetes.io/name": NAME}}
        assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()


@every
def test_only_what_is_needed_reaches_it_and_is_reached(built: Built, name: str) -> None:
    policy: dict[str, Any] = one(built[name], "NetworkPolicy", NAME)["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (metrics,) = policy["ingress"]
    assert metrics == {
        "from": [{"namespaceSelector": {"matchLabels": {"bitfusion.io/monitoring": "allowed"}}}],
        "ports": [{"port": "http-monitoring", "protocol": "TCP"}],
    }
    ports = [(each["port"], each["protocol"]) for rule in policy["egress"] for each in rule["ports"]]
    assert ports == [(56001, "TCP"), (53, "UDP"), (53, "TCP")]  # not the API server's


def test_an_option_is_added_as_the_guide_says(cluster: Cluster) -> None:
    own = yaml.safe_load(yaml_block("--overcommit"))
    assert settings(build_own(cluster, ["device-plugin/kubeflow"], **own)).overcommit == 1.5


def test_on_openshift_its_account_may_use_the_constraints_that_it_needs_and_nothing_else(
    built: Built,
) -> None:
    objects = built["openshift"]
    spec = pod(objects)["spec"]
    account = one(objects, "ServiceAccount", NAME)
    assert spec["serviceAccountName"] == account["metadata"]["name"]
    assert spec["automountServiceAccountToken"] is account["automountServiceAccountToken"] is False
    (binding,) = (
        each
        for each in of_kind(objects, "RoleBinding")
        if each["subjects"][0]["name"] == account["metadata"]["name"]
    )
    role = one(objects, binding["roleRef"]["kind"], binding["roleRef"]["name"])
    assert role["rules"] == [
        {
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": ["privileged"],
            "verbs": ["use"],
        }
    ]
    annotations = one(objects, "Namespace", NAME)["metadata"]["annotations"]
    assert annotations["openshift.io/node-selector"] == ""
    # Its token of the pool stays the smallest.
    ours = one(built["kubeflow"], "Namespace", NAME)["metadata"]["annotations"]
    assert annotations.items() >= ours.items()


def test_images_are_those_that_are_built(built: Built) -> None:
    tag = yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())["images"][0]
    assert plugin(built["kubeflow"])["image"] == f"{tag['name']}:{tag['newTag']}"
    install, _ = pod(built["vmware"])["spec"]["initContainers"]
    assert install["image"] == f"kubeflow-bitfusion/client:{tag['newTag']}"
