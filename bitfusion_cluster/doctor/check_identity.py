"""Who gets a token of the pool: which namespaces should, which got none, and whether the right is held in."""

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
from bitfusion_client.one_line import one_line
from bitfusion_cluster.api.paths import NAMESPACES, deployment_path
from bitfusion_cluster.doctor.engine import engine_of
from bitfusion_cluster.doctor.finding import LONGEST, Finding, counted, fail, named, ok, warn
from bitfusion_cluster.doctor.places import IDENTITY, POLICIES, POLICY_BINDINGS
from bitfusion_cluster.doctor.seen import Seen
from bitfusion_cluster.doctor.served import users_of

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

LABEL = "bitfusion.io/identity"
PROFILES = "BITFUSION_IDENTITY_PROFILES"
RIGHT = "/apis/rbac.authorization.k8s.io/v1/clusterroles/bitfusion-identity-profiles"
POLICY = "bitfusion-identity-account"
TOLD = "/api/v1/events?fieldSelector=involvedObject.kind=Namespace"
READY = "BitfusionIdentityReady"
WITHOUT_A_TOKEN = tuple(
    f"BitfusionIdentity{reason}" for reason in ("NotIssued", "RoleMissing", "ForeignSecret", "Refused")
)
"""Reasons of Events of `bitfusion-identity`, which it tells about a namespace."""


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
    users = users_of(seen)
    without = sorted(
        text(metadata_of(each).get("name"))
        for each in seen.items(NAMESPACES)
        if text(metadata_of(each).get("name")) in users and not _is_served(each, key, value)
    )
    if without:
        yield warn(
            "identity",
            f"no token of the pool is issued for {named(without)}",
            f"kubectl label namespace {without[0]} {LABEL}=true --overwrite; for all profiles at once add "
            "manifests/components/profiles",
        )
    if seen.one(RIGHT) is not None and not (
        POLICY in _names(seen.items(POLICIES)) and POLICY in _bound(seen.items(POLICY_BINDINGS))
    ):
        yield fail(
            "identity",
            f"its account may create Secrets in every namespace: the policy {POLICY} or its binding is "
            "missing",
            "apply manifests/components/profiles again, which contains both; before 1.30 leave it out",
        )
    refused = _refused(seen)
    for message, names in refused.items():
        yield fail(
            "identity",
            f"no token for {named(sorted(names))}: {message}",
            f"kubectl -n {seen.namespace} logs deployment/{IDENTITY} --tail=20; it tries again each minute",
        )
    if not without and not refused and users:
        yield ok("identity", f"tokens for {counted(len(users), 'namespace')}")


def _refused(seen: Seen) -> dict[str, list[str]]:
    """Namespaces for which the last Event about their token says that there is none, by its message."""
    newest: dict[str, RawObject] = {}
    for event in seen.items(TOLD):
        # who writes Events in a namespace can name any other in them
        name = text(metadata_of(event).get("namespace"))
        if event.get("reason") in (READY, *WITHOUT_A_TOKEN) and _when(event) >= _when(newest.get(name, {})):
            newest[name] = event
    found: dict[str, list[str]] = {}
    for name, event in newest.items():
        if event.get("reason") != READY:
            found.setdefault(one_line(event.get("message") or "", LONGEST), []).append(name)
    return found


def _when(event: RawObject) -> str:
    return text(event.get("lastTimestamp"))


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
