"""The webhooks: registered as they must be, trusted, and reached by the API server within how long."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

from bitfusion_client.kubernetes.names import LABEL_REQUESTED, PODS_WEBHOOK
from bitfusion_client.kubernetes.raw_objects import annotations_of, mapping, mappings, text
from bitfusion_cluster.api.errors import ApiFailure, Forbidden
from bitfusion_cluster.api.paths import deployment_path, leases_path, webhook_configuration_path
from bitfusion_cluster.doctor.finding import Finding, fail, ok, warn
from bitfusion_cluster.doctor.places import CONTROLLER, INJECTOR
from bitfusion_cluster.doctor.seen import Seen, words_of
from bitfusion_cluster.webhooks.self_check import ANNOTATION, LABEL, SELF_CHECK, WEBHOOK, judged_failure

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

SLOW_S = 1.0
SOON = timedelta(days=14)
"""The programs renew their CA long before this, when two thirds of its life are over."""


class Kind(NamedTuple):
    """One program's webhooks.

    Attributes:
        program: Its name.
        short: What the table calls it.
        configuration: The name of its MutatingWebhookConfiguration.
        consequence: What happens while they are not reached.
        policies: Its webhooks, each with the failurePolicy that it must have.
    """

    program: str
    short: str
    configuration: str
    consequence: str
    policies: dict[str, str]


KINDS = (
    Kind(
        CONTROLLER,
        "controller",
        "bitfusion-notebook-admission",
        "new notebooks do not get their annotations, and no wrong size is refused",
        {"notebooks.bitfusion.io": "Ignore", "statefulsets.bitfusion.io": "Ignore"},
    ),
    Kind(
        INJECTOR,
        "injector",
        "bitfusion-pod-injection",
        "notebooks start without the client, or not at all",
        {PODS_WEBHOOK: "Fail"},
    ),
)


def check_webhooks(seen: Seen) -> Iterator[Finding]:
    """Each program's: one row for what is registered, one for the certificates, one for a call."""
    for kind in KINDS:
        if seen.one(deployment_path(seen.namespace, kind.program)) is None:
            continue  # told by the check of the programs, or not wanted at all
        found = seen.one(webhook_configuration_path(kind.configuration))
        if found is None:
            todo = "apply the installation again; until then " + kind.consequence
            yield fail(f"{kind.short} webhooks", f"{kind.configuration} is not there", todo)
            continue
        webhooks = mappings(found.get("webhooks"))
        yield from _registered(kind, webhooks)
        if webhooks:
            yield from _trusted(seen, kind, webhooks, datetime.now(timezone.utc))
        yield _called(seen, kind)


def _registered(kind: Kind, webhooks: list[RawObject]) -> Iterator[Finding]:
    check = f"{kind.short} webhooks"
    by_name = {text(each.get("name")): each for each in webhooks}
    again = "apply the installation again"
    wrong = False
    for name, policy in kind.policies.items():
        webhook = by_name.get(name)
        if webhook is None:
            yield fail(check, f"{kind.configuration} has no {name}", again)
            wrong = True
        elif webhook.get("failurePolicy") != policy:
            now = text(webhook.get("failurePolicy"))
            leads = (
                "while the injector is away, a pod that asks for GPUs is admitted unchanged and never starts"
                if policy == "Fail"
                else "no notebook can be created or stopped while the controller is away"
            )
            yield warn(check, f"failurePolicy of {name} is {now}, not {policy}: {leads}", again)
            wrong = True
        if name == PODS_WEBHOOK and webhook is not None and not _is_bounded(webhook):
            yield fail(
                check,
                f"{name} has neither matchConditions nor a label in its objectSelector: every pod waits for "
                "the injector",
                "before Kubernetes 1.28 add manifests/components/without-match-conditions; else " + again,
            )
            wrong = True
    if not wrong:
        policies = ", ".join(sorted(set(kind.policies.values())))
        yield ok(check, f"registered, failurePolicy {policies}")


def _is_bounded(webhook: RawObject) -> bool:
    labels = mapping(mapping(webhook.get("objectSelector")).get("matchLabels"))
    return bool(webhook.get("matchConditions")) or LABEL_REQUESTED in labels


def _trusted(seen: Seen, kind: Kind, webhooks: list[RawObject], now: datetime) -> Iterator[Finding]:
    """The first bundle's certificates; each webhook must have one."""
    check = f"{kind.short} certificate"
    log = (
        f"kubectl -n {seen.namespace} logs -l app.kubernetes.io/name={kind.program} --tail=50 "
        "| grep -i certificate"
    )
    bundles = [text(mapping(each.get("clientConfig")).get("caBundle")) for each in webhooks]
    if not all(bundles):
        yield fail(
            check,
            "caBundle is empty, so the API server does not trust the webhooks",
            f"wait a minute after the installation; then: {log}; with cert-manager: its Certificate",
        )
        return
    try:
        life = _life(bundles[0])
    except ValueError as error:
        yield fail(
            check, f"caBundle cannot be read: {error}", f"apply the installation again, and look at {log}"
        )
        return
    start, end = life
    age, left = (now - start).days, (end - now).days
    if end <= now:
        yield fail(check, f"its CA ended on {end:%Y-%m-%d}", f"restart the program, and look at {log}")
    elif end - now < SOON and end - start > 2 * SOON:
        yield warn(
            check,
            f"its CA ends in {left} days, on {end:%Y-%m-%d}",
            f"it should have been renewed by now: {log}",
        )
    else:
        yield ok(check, f"CA {age} days old, ends on {end:%Y-%m-%d}, renewed automatically")


def _life(bundle: str) -> tuple[datetime, datetime]:
    """From when until when the first certificate of a bundle is good. Raises ValueError."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificates(base64.b64decode(bundle, validate=True))[0]
    except binascii.Error:
        raise ValueError("it is not base64") from None
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _called(seen: Seen, kind: Kind) -> Finding:
    """A dry run of a Lease with the label by which the program's own webhook is asked, and nobody else."""
    check = f"{kind.short} call"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": f"{kind.program}-{SELF_CHECK}", "labels": {LABEL: kind.program}},
        "spec": {},
    }
    try:
        answer, seconds = seen.dry_run(leases_path(seen.namespace), lease)
    except Forbidden as failure:
        todo = (
            f"allow this account to create Leases in namespace {seen.namespace} (dry run; component doctor)"
        )
        if WEBHOOK not in words_of(failure):
            return warn(check, f"not checked: {words_of(failure)}", todo)
        return _unreached(kind, words_of(failure))
    except ApiFailure as failure:
        _, words = judged_failure(failure)
        return _unreached(kind, words if WEBHOOK in words_of(failure) else words_of(failure))
    replica = text(annotations_of(answer).get(ANNOTATION))
    took = f"{seconds * 1000:.0f} ms"
    if not replica:
        return warn(
            check,
            f"the API server does not call it: its webhook {WEBHOOK} is missing or selects nothing",
            "apply the installation again",
        )
    if seconds > SLOW_S:
        todo = "check the nodes' load and the network between API server and pods: after 5 s it gives up"
        return warn(check, f"answered by {replica}, after {took}", todo)
    return ok(check, f"the API server was answered by {replica} in {took}")


def _unreached(kind: Kind, words: str) -> Finding:
    return fail(
        f"{kind.short} call",
        f"the API server does not reach it: {words}",
        "check that its pods are ready; then let the API server connect to their TCP port 8443 through "
        "each firewall and NetworkPolicy, or choose an open port (components/webhook-port). Until then "
        + kind.consequence,
    )
