"""The component that makes pods wait in order: the queue beside an overlay, its rights, and `--gates`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from bitfusion_client.kubernetes.names import QUEUE_CONDITION, QUEUE_GATE
from bitfusion_device_plugin.injector import settings as injector_cli
from bitfusion_device_plugin.queue.settings import PROGRAM
from tests.cluster.cluster import Cluster
from tests.cluster.guide import yaml_block
from tests.cluster.our_controller import with_components
from tests.manifests.built import (
    INJECTOR,
    INSTALLED,
    MANIFESTS,
    NAMESPACES,
    Object,
    Objects,
    container,
    of_kind,
    one,
    pod_template,
    rules,
)
from tests.manifests.queue_installed import ACCOUNT_POLICY, GATE_POLICY, QUEUE
from tests.manifests.test_overlays import CLUSTER_WIDE
from tests.manifests.test_rights_table import table
from tests.manifests.test_schemas import POLICIES_SINCE, VERSIONS, minor
from tests.support.objects import objects_of
from tests.support.schemas import validate

GATES_SINCE = 27
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
Built = Mapping[str, Objects]

each_overlay = pytest.mark.parametrize("overlay", INSTALLED)


@pytest.fixture(scope="module")
def built(cluster: Cluster) -> Built:
    """Each overlay with the component."""
    return {overlay: with_components(cluster, overlay, "queue") for overlay in INSTALLED}


@pytest.fixture(scope="module")
def without_policies(cluster: Cluster) -> Objects:
    return with_components(cluster, "kubeflow", "queue-without-policies")


def ours(objects: Objects) -> Objects:
    return [each for each in objects if name_label(each) == QUEUE]


def name_label(made: Object) -> str | None:
    """A Namespace has none."""
    name: str | None = made["metadata"]["labels"].get("app.kubernetes.io/name")
    return name


@each_overlay
def test_its_objects_are_in_the_overlays_namespace_and_labelled(built: Built, overlay: str) -> None:
    found = ours(built[overlay])
    assert len(found) == 12
    for each in found:
        expected = None if each["kind"] in CLUSTER_WIDE else NAMESPACES[overlay]
        assert each["metadata"].get("namespace") == expected, each["kind"]
        assert each["metadata"]["labels"]["app.kubernetes.io/part-of"] == "kubeflow-bitfusion"
        for subject in each.get("subjects", ()):
            assert subject == {"kind": "ServiceAccount", "name": QUEUE, "namespace": NAMESPACES[overlay]}


@each_overlay
def test_the_injector_differs_in_one_argument(
    overlays: Mapping[str, Objects], built: Built, overlay: str
) -> None:
    before, after = container(overlays[overlay], INJECTOR), container(built[overlay], INJECTOR)
    assert after == {**before, "args": [*before["args"], "--gates=on"]}
    environ = {"BITFUSION_INJECTOR_NAMESPACE": "kubeflow"}
    assert injector_cli.settings_of(before["args"], environ).gates is False
    assert injector_cli.settings_of(after["args"], environ).gates is True


@each_overlay
def test_nothing_else_of_the_overlay_is_changed(
    overlays: Mapping[str, Objects], built: Built, overlay: str
) -> None:
    def others(objects: Objects) -> Objects:
        return [
            each
            for each in objects
            if name_label(each) != QUEUE
            and (each["kind"], each["metadata"]["name"]) != ("Deployment", INJECTOR)
        ]

    assert others(built[overlay]) == others(overlays[overlay])


@each_overlay
def test_its_pods_are_restricted_and_two(built: Built, overlay: str) -> None:
    objects = built[overlay]
    theirs, deployment = pod_template(objects, INJECTOR)["spec"], one(objects, "Deployment", QUEUE)["spec"]
    pod = deployment["template"]["spec"]
    same = ("securityContext", "priorityClassName", "enableServiceLinks", "terminationGracePeriodSeconds")
    assert {name: pod[name] for name in same} == {name: theirs[name] for name in same}
    assert container(objects, QUEUE)["securityContext"] == container(objects, INJECTOR)["securityContext"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes"} & set(pod)
    assert (deployment["replicas"], one(objects, "PodDisruptionBudget", QUEUE)["spec"]["maxUnavailable"]) == (
        2,
        1,
    )
    assert deployment["strategy"] == one(objects, "Deployment", INJECTOR)["spec"]["strategy"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = [
        deployment["selector"]["matchLabels"],
        one(objects, "PodDisruptionBudget", QUEUE)["spec"]["selector"]["matchLabels"],
        one(objects, "NetworkPolicy", QUEUE)["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in pod["topologySpreadConstraints"]),
    ]
    for selector in selectors:
        assert selector == {"app.kubernetes.io/name": labels["app.kubernetes.io/name"]}


@each_overlay
def test_its_arguments_are_settings_of_the_command(built: Built, overlay: str) -> None:
    made = container(built[overlay], QUEUE)
    (program,) = made["command"]
    project = (MANIFESTS.parent / "pyproject.toml").read_text()
    assert f'{program} = "bitfusion_device_plugin.queue.settings:main"' in project
    (namespace,) = made["env"]
    assert namespace["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.namespace"}}
    found = PROGRAM.settings_of(made["args"], {namespace["name"]: NAMESPACES[overlay]})
    assert (found.name, found.namespace, found.ignored) == (QUEUE, NAMESPACES[overlay], ())
    assert found.log_format == "json"
    ports = {each["name"]: each["containerPort"] for each in made["ports"]}
    assert ports == {"http-monitoring": found.monitoring_port}
    annotations = pod_template(built[overlay], QUEUE)["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(found.monitoring_port)


def test_it_fits_pod_security(cluster: Cluster, built: Built) -> None:
    namespace = cluster.new_namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    spec = {**pod_template(built["kubeflow"], QUEUE)["spec"], "serviceAccountName": "default"}
    del spec["priorityClassName"]
    pod = {"metadata": {"name": "pod"}, "spec": spec}
    cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")


def test_it_is_the_image_of_the_other_processes(built: Built) -> None:
    assert container(built["kubeflow"], QUEUE)["image"] == container(built["kubeflow"], INJECTOR)["image"]
    component = yaml.safe_load(
        (MANIFESTS / "components" / "queue-without-policies" / "kustomization.yaml").read_text()
    )
    assert (
        component["images"]
        == yaml.safe_load((MANIFESTS / "base" / "kustomization.yaml").read_text())["images"]
    )


@each_overlay
def test_only_metrics_reach_it(built: Built, overlay: str) -> None:
    policy = one(built[overlay], "NetworkPolicy", QUEUE)["spec"]
    (metrics,) = policy["ingress"]
    assert metrics["ports"] == [{"port": "http-monitoring", "protocol": "TCP"}]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"bitfusion.io/monitoring": "allowed"}}}]
    assert policy["egress"] == one(built[overlay], "NetworkPolicy", INJECTOR)["spec"]["egress"]


@each_overlay
def test_the_guide_lists_exactly_the_rights_that_are_given(built: Built, overlay: str) -> None:
    expected = table("## What the queue may do")
    assert set(rules(built[overlay], QUEUE)) == set(expected)
    for right, reason in expected.items():
        assert len(reason) > 20, right


@each_overlay
@pytest.mark.parametrize("policy", [ACCOUNT_POLICY, GATE_POLICY])
def test_the_policies_are_about_the_account_of_the_overlay(built: Built, overlay: str, policy: str) -> None:
    condition = one(built[overlay], "ValidatingAdmissionPolicy", policy)["spec"]["matchConditions"][0]
    operator = "==" if policy == ACCOUNT_POLICY else "!="
    user = f"system:serviceaccount:{NAMESPACES[overlay]}:{QUEUE}"
    assert condition["expression"] == f"request.userInfo.username {operator} '{user}'"


def test_the_policies_name_what_the_program_writes(built: Built) -> None:
    account = one(built["kubeflow"], "ValidatingAdmissionPolicy", ACCOUNT_POLICY)
    gate = one(built["kubeflow"], "ValidatingAdmissionPolicy", GATE_POLICY)
    assert f"'{QUEUE_GATE}'" in str(gate["spec"]["validations"][0]["expression"])
    assert f"'{QUEUE_CONDITION}'" in str(account["spec"]["variables"])


def test_before_kubernetes_1_30_only_the_policies_are_left_out(
    built: Built, without_policies: Objects
) -> None:
    assert ours(without_policies) == [
        each for each in ours(built["kubeflow"]) if each["kind"] not in POLICIES
    ]
    assert not [kind for kind in POLICIES if of_kind(without_policies, kind)]


@pytest.mark.parametrize("version", [each for each in VERSIONS if minor(each) >= GATES_SINCE])
def test_every_object_fits_the_schemas(built: Built, without_policies: Objects, version: str) -> None:
    for each in ours(built["kubeflow"] if minor(version) >= POLICIES_SINCE else without_policies):
        validate(each, version)


def test_a_size_of_its_own_is_added_as_the_guide_says(cluster: Cluster, tmp_path: Path) -> None:
    manifests = os.path.relpath(MANIFESTS, os.path.realpath(tmp_path))
    kustomization = {
        "resources": [f"{manifests}/overlays/kubeflow"],
        "components": [f"{manifests}/components/queue"],
        **yaml.safe_load(yaml_block("--units=")),
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(kustomization))
    objects = objects_of(cluster.kubectl("kustomize", str(tmp_path)))
    environ = {"BITFUSION_QUEUE_NAMESPACE": "kubeflow"}
    settings = PROGRAM.settings_of(container(objects, QUEUE)["args"], environ)
    assert settings.units == 200
    overlay = yaml.safe_load(yaml_block("NodeOverlay"))
    assert overlay["spec"]["capacity"] == {"bitfusion.io/gpu": str(settings.units)}
