"""The components that serve every profile: rights and policy for the overlay's account, and another label."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_device_plugin.identity.settings import PROGRAM
from tests.cluster.cluster import Cluster
from tests.manifests.built import NAMESPACES, Objects, build_own, of_kind, one
from tests.support.schemas import validate

IDENTITY = "bitfusion-identity"
KUBEFLOW = "app.kubernetes.io/part-of=kubeflow-profile"
ACCOUNT = "request.userInfo.username == 'system:serviceaccount:{}:bitfusion-identity'"
WEBHOOKS = {
    "bitfusion-notebook-admission": ("notebooks.bitfusion.io", "statefulsets.bitfusion.io"),
    "bitfusion-pod-injection": ("pods.bitfusion.io",),
}
LOCAL = {"annotations": {"config.kubernetes.io/local-config": "true"}}


def build(cluster: Cluster, overlay: str, label: str = "") -> Objects:
    identity = "standalone" if overlay == "standalone" else "kubeflow"
    components, more = ["profiles"], dict[str, Any]()
    if label:
        components.append("profiles-label")
        literals = [f"label={label}"]
        more["configMapGenerator"] = [{"name": "bitfusion-profiles", "literals": literals, "options": LOCAL}]
    return build_own(cluster, [f"overlays/{overlay}", f"identity/{identity}"], components, **more)


def profiles_of(objects: Objects) -> tuple[str, str]:
    """The label as the program gets it, and as the policy has it."""
    (container,) = one(objects, "Deployment", IDENTITY)["spec"]["template"]["spec"]["containers"]
    environ = {each["name"]: str(each.get("value", "x")) for each in container["env"]}
    settings = PROGRAM.settings_of(container["args"], environ)
    assert settings.profiles is not None
    policy = one(objects, "ValidatingAdmissionPolicy", f"{IDENTITY}-account")["spec"]
    (variable,) = [each for each in policy["variables"] if each["name"] == "profiles"]
    assert variable["expression"].strip("'") == variable["expression"][1:-1]
    return "=".join(settings.profiles), variable["expression"][1:-1]


@pytest.mark.parametrize("overlay", ["kubeflow", "standalone", "cert-manager"])
def test_rights_and_policy_are_for_the_account_of_that_overlay(cluster: Cluster, overlay: str) -> None:
    objects, own = build(cluster, overlay), NAMESPACES[overlay]
    assert profiles_of(objects) == (KUBEFLOW, KUBEFLOW)
    name = f"{IDENTITY}-profiles"
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        subject = {"kind": "ServiceAccount", "name": IDENTITY, "namespace": own}
        assert one(objects, kind, name)["subjects"] == [subject]
    for kind in ("Role", "RoleBinding"):
        assert one(objects, kind, name)["metadata"]["namespace"] == own
    (condition,) = one(objects, "ValidatingAdmissionPolicy", f"{IDENTITY}-account")["spec"]["matchConditions"]
    assert condition["expression"] == ACCOUNT.format(own)


def test_the_right_to_write_secrets_comes_with_its_policy_and_reads_none(cluster: Cluster) -> None:
    objects = build(cluster, "kubeflow")
    assert one(objects, "ClusterRole", f"{IDENTITY}-profiles")["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["bitfusion-client"],
            "verbs": ["update"],
        },
    ]
    binding = one(objects, "ValidatingAdmissionPolicyBinding", f"{IDENTITY}-account")["spec"]
    assert binding == {"policyName": f"{IDENTITY}-account", "validationActions": ["Deny"]}


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
def test_every_object_fits_the_schemas(cluster: Cluster, version: str) -> None:
    for each in build(cluster, "kubeflow", "team=vision"):
        validate(each, version)


@pytest.mark.parametrize("label", ["bitfusion.io/identity=true", "example.com/notebooks=gpus.v2", "team=a"])
def test_another_label_reaches_program_policy_and_webhooks(cluster: Cluster, label: str) -> None:
    objects = build(cluster, "kubeflow", label)
    assert profiles_of(objects) == (label, label)
    key, value = label.split("=")
    seen = 0
    for configuration, names in WEBHOOKS.items():
        for webhook in one(objects, "MutatingWebhookConfiguration", configuration)["webhooks"]:
            if webhook["name"] in names:
                seen += 1
                assert webhook["namespaceSelector"] == {
                    "matchExpressions": [
                        {"key": "bitfusion.io/admission", "operator": "NotIn", "values": ["ignore"]},
                        {"key": key, "operator": "In", "values": [value]},
                    ]
                }
    assert seen == 3
    assert not [
        each for each in of_kind(objects, "ConfigMap") if each["metadata"]["name"] == "bitfusion-profiles"
    ]
