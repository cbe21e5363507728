"""The components of the form's Job and of the doctor: whole, in one namespace, valid on every version."""

from __future__ import annotations

import pytest

from tests.cluster.cluster import Cluster
from tests.manifests.built import Objects, build, build_own
from tests.manifests.test_schemas import POLICIES_SINCE, VERSIONS, minor
from tests.support.schemas import validate

COMPONENTS = ("form-job", "form-give-back", "restrict-form", "doctor")
IMAGE = "kubeflow-bitfusion/notebook-controller:0.1.0"
CLUSTER_WIDE = (
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)


@pytest.fixture(scope="module", params=["kubeflow", "standalone"])
def added(cluster: Cluster, request: pytest.FixtureRequest) -> tuple[str, Objects]:
    """What the components add to an overlay, and the overlay's namespace."""
    overlay = str(request.param)
    before = [(each["kind"], each["metadata"]["name"]) for each in build(cluster, overlay)]
    objects = build_own(cluster, [f"overlays/{overlay}"], COMPONENTS)
    namespace = {"kubeflow": "kubeflow", "standalone": "bitfusion-system"}[overlay]
    return namespace, [each for each in objects if (each["kind"], each["metadata"]["name"]) not in before]


def test_all_is_in_the_namespace_of_the_installation_and_labelled(added: tuple[str, Objects]) -> None:
    namespace, objects = added
    assert len(objects) == 14
    for each in objects:
        metadata = each["metadata"]
        assert metadata["labels"]["app.kubernetes.io/part-of"] == "kubeflow-bitfusion"
        if each["kind"] not in CLUSTER_WIDE:
            assert metadata["namespace"] == namespace
        for subject in each.get("subjects", ()):
            assert subject["namespace"] == namespace
        if each["kind"] == "ValidatingAdmissionPolicy":
            (condition,) = each["spec"]["matchConditions"]
            assert f"'system:serviceaccount:{namespace}:bitfusion-form'" in condition["expression"]


def test_pods_are_of_the_strictest_kind(added: tuple[str, Objects]) -> None:
    pods = [
        each["spec"]["template"] if each["kind"] == "Job" else each
        for each in added[1]
        if each["kind"] in ("Job", "Pod")
    ]
    assert len(pods) == 3
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        assert container["image"] == IMAGE
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["securityContext"]["runAsUser"] == 65532
        assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"


def test_nobody_is_given_secrets_or_the_right_to_write_all(added: tuple[str, Objects]) -> None:
    rules = [rule for each in added[1] if each["kind"] in ("Role", "ClusterRole") for rule in each["rules"]]
    assert "secrets" not in [name for rule in rules for name in rule["resources"]]
    writes = {
        (name, verb)
        for rule in rules
        for name in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert writes == {("configmaps", "patch"), ("leases", "create"), ("subjectaccessreviews", "create")}


@pytest.mark.parametrize("version", [version for version in VERSIONS if minor(version) >= POLICIES_SINCE])
def test_they_fit_the_schemas(added: tuple[str, Objects], version: str) -> None:
    for each in added[1]:
        validate(each, version)
