"""Events about a namespace, in that namespace: `kubectl get events` shows its users why they have no access.

Kinds: identity ready, Role missing, foreign Secret, pool or its files not usable, limits that are wrong, or
more than the pool's issuer gives.
"""

from __future__ import annotations

from typing import Any

from bitfusion_client.pod.pod_contract import IDENTITY_SECRET
from bitfusion_client.request.decimals import plain_number
from bitfusion_cluster.api.events import NORMAL, WARNING, Said, about, event_object
from bitfusion_device_plugin.identity.limits import KINDS, Limits, limits_text
from bitfusion_device_plugin.identity.records import DEFAULT_NAME, NamespaceRecord

ROLE_FOLDERS = {"kubeflow": "manifests/namespace/kubeflow"}  # by the controller's own namespace
OTHER_ROLE_FOLDER = "manifests/namespace/standalone"


def role_command(namespace: str, own_namespace: str) -> str:
    """What an administrator types to let the controller keep one namespace's Secret."""
    folder = ROLE_FOLDERS.get(own_namespace, OTHER_ROLE_FOLDER)
    return f"kubectl apply --namespace {namespace} -k {folder}"


def ready(limits: str) -> Said:
    """`limits` as `limits_text` has them."""
    return Said(
        NORMAL,
        "BitfusionIdentityReady",
        f"Secret {IDENTITY_SECRET} gives this namespace access to the Bitfusion pool. Limits: {limits}.",
    )


def role_missing(namespace: str, own_namespace: str) -> Said:
    """The controller may not read or write the Secret."""
    return Said(
        WARNING,
        "BitfusionIdentityRoleMissing",
        f"This namespace is labelled for the Bitfusion pool, but the controller may not write Secret "
        f"{IDENTITY_SECRET} here. An administrator must run: {role_command(namespace, own_namespace)}",
    )


def foreign_secret(namespace: str) -> Said:
    """There is a Secret of that name that the controller did not make."""
    return Said(
        WARNING,
        "BitfusionIdentityForeignSecret",
        f"Secret {IDENTITY_SECRET} was not created by the controller, which leaves it unchanged and issues "
        "no "
        "token. "
        f"If the Secret is not needed: kubectl delete secret {IDENTITY_SECRET} --namespace {namespace}",
    )


def no_token(why: str) -> Said:
    """The pool issues none; `why` in its words."""
    return Said(
        WARNING,
        "BitfusionIdentityNotIssued",
        f"No token of the Bitfusion pool could be obtained; the controller tries again: {why}",
    )


def refused(why: str) -> Said:
    """The API server does not take the Secret, for another reason than a Role; `why` in its words."""
    return Said(
        WARNING, "BitfusionIdentityRefused", f"Secret {IDENTITY_SECRET} cannot be written here: {why}"
    )


def wrong_limits(problems: tuple[str, ...]) -> Said:
    """Annotations that are wrong, where the defaults hold, and limits that are more than is allowed."""
    return Said(WARNING, "BitfusionIdentityWrongLimits", "; ".join(problems))


def limits_lowered(asked: Limits, given: Limits) -> Said:
    """The pool's issuer may not give as much; `asked` has at least the kinds of `given`."""
    wanted = {kind: asked[kind] for kind in given}
    options = " ".join(f"--may-issue-{kind} {plain_number(asked[kind])}" for kind in KINDS if kind in given)
    return Said(
        WARNING,
        "BitfusionIdentityLimitsLowered",
        f"This namespace may have {limits_text(wanted)} of the Bitfusion pool, but the pool's issuer gives "
        f"at most {limits_text(given)}, which applies. For more, the pool's administrator must create an "
        "issuer with "
        f"{options} and delete Secret {IDENTITY_SECRET} here, which is created again within ten minutes.",
    )


def event_body(namespace: NamespaceRecord, said: Said, reporter: str = "") -> dict[str, Any]:
    """The Event to be created, reported by the replica `reporter`.

    It is in the namespace: one of a cluster-wide object belongs into `default`, which its users do not see.
    """
    whom = about("v1", "Namespace", namespace.name, namespace.name, namespace.uid)
    return event_object(whom, said, DEFAULT_NAME, reporter)
