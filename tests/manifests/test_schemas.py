"""Every object fits the schemas of every Kubernetes version that they are at hand for, field by field."""

from __future__ import annotations

from collections.abc import Mapping

import kubernetes_validate
import pytest
from kubernetes_validate.utils import all_versions

from tests.cluster.cluster import Cluster
from tests.cluster.our_controller import restricted, with_components
from tests.manifests.built import (
    CONTROLLER,
    INJECTOR,
    INSTALLED,
    POD_WEBHOOKS,
    POLICY,
    PROCESSES,
    Objects,
    of_kind,
    one,
)
from tests.support.objects import objects_of
from tests.support.schemas import validate

Overlays = Mapping[str, Objects]
VERSIONS = [version.rpartition(".")[0] for version in dict.fromkeys(all_versions())]  # "1.25" and so on
CONDITIONS_SINCE = 27  # matchConditions of webhooks
POLICIES_SINCE = 30
ACCOUNTS = {CONTROLLER: "bitfusion-controller-account", INJECTOR: "bitfusion-injector-account"}


def minor(version: str) -> int:
    return int(version.partition(".")[2])


def test_old_and_new_versions_are_at_hand() -> None:
    assert {"1.25", "1.34", "1.37"} <= set(VERSIONS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", INSTALLED)
def test_an_installation_fits(overlays: Overlays, overlay: str, version: str) -> None:
    for item in overlays[overlay]:
        if item["apiVersion"].startswith("cert-manager.io/"):
            continue
        if minor(version) < CONDITIONS_SINCE and item["kind"] == "MutatingWebhookConfiguration":
            # There the component without-match-conditions is needed.
            with pytest.raises(kubernetes_validate.ValidationError, match="matchConditions"):
                validate(item, version)
            continue
        validate(item, version)


@pytest.mark.parametrize("version", [version for version in VERSIONS if minor(version) < CONDITIONS_SINCE])
@pytest.mark.parametrize("overlay", INSTALLED)
def test_an_installation_for_old_servers_fits_them(cluster: Cluster, overlay: str, version: str) -> None:
    objects = with_components(cluster, overlay, "without-match-conditions")
    for item in objects:
        if not item["apiVersion"].startswith("cert-manager.io/"):
            validate(item, version)
    # Pods are chosen by their label alone: nobody else's is sent, and none waits.
    pods, _ = one(objects, "MutatingWebhookConfiguration", POD_WEBHOOKS)["webhooks"]
    assert pods["objectSelector"] == {
        "matchLabels": {"bitfusion.io/requested": "true"},
        "matchExpressions": [{"key": "bitfusion.io/admission", "operator": "NotIn", "values": ["ignore"]}],
    }


@pytest.mark.parametrize("version", [version for version in VERSIONS if minor(version) >= POLICIES_SINCE])
def test_the_policy_fits(overlays: Overlays, version: str) -> None:
    objects = overlays["validating-policy"]
    assert len(objects) == 2
    validate(one(objects, "ValidatingAdmissionPolicy", POLICY), version)
    for item in of_kind(objects, "ValidatingAdmissionPolicyBinding"):
        validate(item, version)


@pytest.mark.parametrize("version", [version for version in VERSIONS if minor(version) >= POLICIES_SINCE])
def test_the_accounts_policy_fits(cluster: Cluster, version: str) -> None:
    objects = objects_of(restricted(cluster, "kubeflow"))
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        for name in ACCOUNTS.values():
            validate(one(objects, kind, name), version)


@pytest.mark.parametrize("overlay", INSTALLED)
@pytest.mark.parametrize("process", PROCESSES)
def test_the_accounts_policy_is_for_the_account_of_the_overlay(
    cluster: Cluster, overlay: str, process: str
) -> None:
    objects = objects_of(restricted(cluster, overlay))
    account = one(objects, "ServiceAccount", process)["metadata"]
    policy = one(objects, "ValidatingAdmissionPolicy", ACCOUNTS[process])
    (condition,) = policy["spec"]["matchConditions"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert condition["expression"] == f"request.userInfo.username == '{user}'"


def test_the_policy_is_not_known_before(overlays: Overlays) -> None:
    policy = one(overlays["validating-policy"], "ValidatingAdmissionPolicy", POLICY)
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        validate(policy, f"1.{POLICIES_SINCE - 1}")
