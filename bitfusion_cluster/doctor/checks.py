"""All checks of a cluster, in the order of the table, each by itself: what one may not see stops no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from bitfusion_client.kubernetes.raw_objects import mapping, mappings, text
from bitfusion_cluster.doctor.check_features import check_features
from bitfusion_cluster.doctor.check_gpus import check_engine, check_gpus
from bitfusion_cluster.doctor.check_identity import check_identity
from bitfusion_cluster.doctor.check_namespaces import check_accounts, check_namespaces, check_notebooks
from bitfusion_cluster.doctor.check_policies import check_policies
from bitfusion_cluster.doctor.check_programs import check_programs, is_installed
from bitfusion_cluster.doctor.check_quotas import check_quotas
from bitfusion_cluster.doctor.check_server import check_kubeflow, check_server
from bitfusion_cluster.doctor.check_webhooks import check_webhooks
from bitfusion_cluster.doctor.finding import Finding, fail, warn
from bitfusion_cluster.doctor.places import POD_WEBHOOKS
from bitfusion_cluster.doctor.seen import Seen, Unseen


class Check(NamedTuple):
    """One check, and what the table calls it where it could not be made."""

    name: str
    run: Callable[[Seen], Iterable[Finding]]


SERVER = Check("Kubernetes", check_server)
INSTALLED = (
    Check("Kubeflow", check_kubeflow),
    Check("programs", check_programs),
    Check("webhooks", check_webhooks),
    Check("policies", check_policies),
)
FOR_USERS = (
    Check("engine", check_engine),
    Check("GPUs", check_gpus),
    Check("quotas", check_quotas),
    Check("namespaces", check_namespaces),
    Check("identity", check_identity),
    Check("trial notebook", check_notebooks),
    Check("rights of notebooks", check_accounts),
)
FEATURES = Check("features", check_features)


def findings(seen: Seen, more: Iterable[Check] = ()) -> Iterator[Finding]:
    """The findings one after the other, as they are made; `more` checks stand before the features.

    Where the API server does not answer at all there is one finding; where nothing is installed, no more is
    looked at.
    """
    try:
        yield from list(check_server(seen))
    except Unseen as unseen:
        yield fail(
            "Kubernetes",
            f"the API server does not answer: {unseen.words}",
            "try kubectl version with the same kubeconfig; choose another with --kubeconfig or KUBECONFIG",
        )
        return
    try:
        checks = (*INSTALLED, *FOR_USERS, *more, FEATURES) if is_installed(seen) else INSTALLED
    except Unseen:
        checks = (*INSTALLED, *FOR_USERS, *more, FEATURES)
    unseen_by: dict[str, tuple[list[str], Unseen]] = {}
    for check in checks:
        try:
            yield from check.run(seen)
        except Unseen as unseen:
            unseen_by.setdefault(unseen.words, ([], unseen))[0].append(check.name)
    for names, reason in unseen_by.values():
        yield _not_checked(names, reason)


def _not_checked(names: list[str], unseen: Unseen) -> Finding:
    """What is said of checks that could not be made, all for one reason."""
    if unseen.is_forbidden:
        todo = "run it as an admin, or give the account the rights of manifests/components/doctor"
    else:
        todo = f"the API server did not give {unseen.path}: run it again"
    return warn("not checked", f"{', '.join(names)}: {unseen.words}", todo)


def found_namespace(seen: Seen, default: str) -> str:
    """Where our programs are, by the injector's webhook; the default if there is none."""
    try:
        found = seen.one(POD_WEBHOOKS)
    except Unseen:
        return default
    for webhook in mappings((found or {}).get("webhooks")):
        service = mapping(mapping(webhook.get("clientConfig")).get("service"))
        if service.get("name"):
            return text(service.get("namespace")) or default
    return default
