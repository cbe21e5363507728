"""Who gets a token of the pool: which served namespaces, and whether the right for it is held in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bitfusion_client.kubernetes.raw_objects import (
    containers_of,
    labels_of,
    mapping,
    mappings,
    metadata_of,
    pod_spec_of,
    text,
)
from bitfusion_cluster.api.paths import NAMESPACES, deployment_path
from bitfusion_cluster.doctor.check_namespaces import users_of
from bitfusion_cluster.doctor.engine import engine_of
from bitfusion_cluster.doctor.finding import Finding, counted, fail, named, ok, warn
from bitfusion_cluster.doctor.places import IDENTITY, POLICIES, POLICY_BINDINGS
from bitfusion_cluster.doctor.seen import Seen

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

LABEL = "bitfusion.io/identity"
PROFILES = "BITFUSION_IDENTITY_PROFILES"
RIGHT = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bitfusion-identity-profiles"
POLICY = "bitfusion-identity-account"


def check_identity(seen: Seen) -> Iterator[Finding]:
    """Only where notebooks compute on a pool."""
    identity = seen.one(deployment_path(seen.namespace, IDENTITY))
    if identity is None:
        if engine_of(seen).has_pool:
            yield warn(
                "identity",
                "bitfusion-identity is not installed: you create each namespace's Secret bitfusion-client",
                "if the pool has an issuer, apply manifests/identity/kubeflow; otherwise do nothing",
            )
        return
    key, _, value = _profiles(identity).partition("=")
    without = sorted(
        text(metadata_of(each).get("name"))
        for each in seen.items(NAMESPACES)
        if text(metadata_of(each).get("name")) in users_of(seen) and not _is_served(each, key, value)
    )
    if without:
        yield warn(
            "identity",
            f"no token of the pool is issued for {named(without)}",
            f"kubectl label namespace {without[0]} {LABEL}=true --overwrite; for all profiles at once add "
            "manifests/components/profiles",
        )
    elif users_of(seen):
        yield ok("identity", f"tokens for {counted(len(users_of(seen)), 'namespace')}")
    if seen.one(RIGHT) is not None and not (
        POLICY in _names(seen.items(POLICIES)) and POLICY in _bound(seen.items(POLICY_BINDINGS))
    ):
        yield fail(
            "identity",
            f"its account may create Secrets in every namespace: the policy {POLICY} or its binding is "
            "missing",
            "apply manifests/components/profiles again, which contains both; before 1.30 leave it out",
        )


def _profiles(identity: RawObject) -> str:
    for container in containers_of(pod_spec_of(identity)):
        for variable in mappings(container.get("env")):
            if variable.get("name") == PROFILES:
                return text(variable.get("value"))
    return ""


def _is_served(namespace: RawObject, key: str, value: str) -> bool:
    labels = labels_of(namespace)
    if labels.get(LABEL) == "true":
        return True
    return bool(key) and labels.get(key) == value and labels.get(LABEL) != "false"


def _names(objects: list[RawObject]) -> set[str]:
    return {text(metadata_of(each).get("name")) for each in objects}


def _bound(bindings: list[RawObject]) -> set[str]:
    return {text(mapping(each.get("spec")).get("policyName")) for each in bindings}
