"""Events about a namespace, in that namespace: `kubectl get events` shows its users why they have no access.

Kinds: identity ready, Role missing, foreign Secret, pool or its files not usable, limits that are wrong, or
more than the pool's issuer gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bitfusion_client.pod.pod_contract import IDENTITY_SECRET
from bitfusion_client.request.decimals import plain_number
from bitfusion_cluster.api.events import NORMAL, WARNING, event_object
from bitfusion_device_plugin.identity.limits import KINDS, Limits, limits_text
from bitfusion_device_plugin.identity.records import DEFAULT_NAME, NamespaceRecord

ROLE_FOLDERS = {"kubeflow": "manifests/namespace/kubeflow"}  # by the controller's own namespace
OTHER_ROLE_FOLDER = "manifests/namespace/standalone"


def role_command(namespace: str, own_namespace: str) -> str:
    """What an administrator types to let the controller keep one namespace's Secret."""
    folder = ROLE_FOLDERS.get(own_namespace, OTHER_ROLE_FOLDER)
    return f"kubectl apply --namespace {namespace} -k {folder}"


@dataclass(frozen=True, slots=True)
class NamespaceEvent:
    """One Event; `type` is ``Normal`` or ``Warning``."""

    type: str
    reason: str
    message: str


def ready(limits: str) -> NamespaceEvent:
    """`limits` as `limits_text` has them."""
    return NamespaceEvent(
        NORMAL,
        "BitfusionIdentityReady",
        f"Secret {IDENTITY_SECRET} lets this namespace use the Bitfusion pool. Limits: {limits}.",
    )


def role_missing(namespace: str, own_namespace: str) -> NamespaceEvent:
    """The controller may not read or write the Secret."""
    return NamespaceEvent(
        WARNING,
        "BitfusionIdentityRoleMissing",
        f"This namespace is labelled for the Bitfusion pool, and the controller may not keep Secret "
        f"{IDENTITY_SECRET} here. An administrator runs: {role_command(namespace, own_namespace)}",
    )


def foreign_secret(namespace: str) -> NamespaceEvent:
    """There is a Secret of that name that the controller did not make."""
    return NamespaceEvent(
        WARNING,
        "BitfusionIdentityForeignSecret",
        f"Secret {IDENTITY_SECRET} is not the controller's, which leaves it as it is and issues no token. "
        f"If it is not needed: kubectl delete secret {IDENTITY_SECRET} --namespace {namespace}",
    )


def no_token(why: str) -> NamespaceEvent:
    """The pool issues none; `why` in its words."""
    return NamespaceEvent(
        WARNING,
        "BitfusionIdentityNotIssued",
        f"No token of the Bitfusion pool could be got, and it is tried again: {why}",
    )


def refused(why: str) -> NamespaceEvent:
    """The API server does not take the Secret, for another reason than a Role; `why` in its words."""
    return NamespaceEvent(
        WARNING, "BitfusionIdentityRefused", f"Secret {IDENTITY_SECRET} cannot be kept here: {why}"
    )


def wrong_limits(problems: tuple[str, ...]) -> NamespaceEvent:
    """Annotations that are wrong, where the defaults hold, and limits that are more than is allowed."""
    return NamespaceEvent(WARNING, "BitfusionIdentityWrongLimits", "; ".join(problems))


def limits_lowered(asked: Limits, given: Limits) -> NamespaceEvent:
    """The pool's issuer may not give as much; `asked` has at least the kinds of `given`."""
    wanted = {kind: asked[kind] for kind in given}
    options = " ".join(f"--may-issue-{kind} {plain_number(asked[kind])}" for kind in KINDS if kind in given)
    return NamespaceEvent(
        WARNING,
        "BitfusionIdentityLimitsLowered",
        f"This namespace may have {limits_text(wanted)} of the Bitfusion pool, and the pool's issuer gives "
        f"at most {limits_text(given)}, which holds. For more, the pool's administrator makes an issuer with "
        f"{options}, and Secret {IDENTITY_SECRET} is deleted here: it is made anew within ten minutes.",
    )


def event_body(namespace: NamespaceRecord, event: NamespaceEvent, reporter: str = "") -> dict[str, Any]:
    """The Event to be created, reported by the replica `reporter`.

    It is in the namespace: one of a cluster-wide object belongs into `default`, which its users do not see.
    """
    about = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "namespace": namespace.name,
        "name": namespace.name,
        "uid": namespace.uid,
    }
    return event_object(about, event.type, event.reason, event.message, DEFAULT_NAME, reporter)
