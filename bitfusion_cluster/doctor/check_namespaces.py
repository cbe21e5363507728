"""Namespaces: who is served, what becomes of a notebook there, and whether its account may make GPU pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bitfusion_client.kubernetes.names import (
    ADMISSION_IGNORE,
    LABEL_ADMISSION,
    RESOURCE_AMOUNT,
)
from bitfusion_client.kubernetes.raw_objects import (
    init_containers_of,
    labels_of,
    mapping,
    metadata_of,
    text,
)
from bitfusion_cluster.api.errors import ApiFailure, Forbidden, NoAnswer
from bitfusion_cluster.api.paths import NAMESPACES
from bitfusion_cluster.doctor.engine import engine_of
from bitfusion_cluster.doctor.finding import Finding, counted, fail, named, ok, warn
from bitfusion_cluster.doctor.places import PART_OF, PROFILE, pods
from bitfusion_cluster.doctor.seen import Seen, Unseen, words_of
from bitfusion_cluster.doctor.served import served_namespaces, users_of

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

MOST_TRIED = 20
ACCOUNT = "default-editor"
RIGHTS = (("create", "pods"), ("get", "pods"), ("watch", "pods"), ("delete", "pods"), ("create", "secrets"))
NO_WEBHOOK = "failed calling webhook"
NO_RIGHT = " may not create pods in "
TRIAL = "bitfusion-doctor-trial"


def check_namespaces(seen: Seen) -> Iterator[Finding]:
    """Whom the injector is asked about, and which profiles it is not."""
    found, served = seen.items(NAMESPACES), served_namespaces(seen)
    profiles = [each for each in found if labels_of(each).get(PART_OF) == PROFILE]
    left_out = [_name(each) for each in profiles if _name(each) not in served]
    ignored = [_name(each) for each in profiles if labels_of(each).get(LABEL_ADMISSION) == ADMISSION_IGNORE]
    if not served:
        yield fail(
            "namespaces",
            "none is served: the webhook's namespaceSelector matches no namespace",
            "create a Profile, or label a namespace to match the selector: kubectl get "
            "mutatingwebhookconfiguration bitfusion-pod-injection -o yaml",
        )
    else:
        yield ok("namespaces", f"{counted(len(served), 'namespace')} served: {named(sorted(served))}")
    silent = [name for name in left_out if name not in ignored]
    if silent:
        todo = "if they need GPUs, label them to match the webhook's namespaceSelector"
        yield warn("namespaces", f"profiles that are not served: {named(silent)}", todo)
    if ignored:
        yield ok("namespaces", f"opted out by {LABEL_ADMISSION}={ADMISSION_IGNORE}: {named(ignored)}")


def check_notebooks(seen: Seen) -> Iterator[Finding]:
    """What the API server would make of a notebook's pod in each served namespace: a dry run of it."""
    tried = sorted(users_of(seen))[:MOST_TRIED]
    good: list[str] = []
    slowest = 0.0
    for namespace in tried:
        try:
            answer, seconds = seen.dry_run(pods(namespace), trial_pod(_has_account(seen, namespace)))
        except Forbidden as failure:
            words = words_of(failure)
            if NO_RIGHT in words:
                todo = "run it as an admin: kubeflow-bitfusion doctor, with your own kubeconfig"
                yield warn("trial notebook", f"not checked: {words}", todo)
                return
            yield _refused(namespace, words)
        except ApiFailure as failure:
            words = words_of(failure)
            yield _refused(namespace, words)
            if isinstance(failure, NoAnswer) or NO_WEBHOOK in words:
                break  # it would be waited for in each namespace
        else:
            slowest = max(slowest, seconds)
            if init_containers_of(mapping(answer.get("spec"))):
                good.append(namespace)
            else:
                yield fail(
                    "trial notebook",
                    f"a pod that asks for a GPU in {namespace} is admitted without the client",
                    "the injector is not called, or fails open: see the webhooks above",
                )
    if good:
        where = named(good)
        yield ok("trial notebook", f"gets its client in {where} (dry run, {slowest * 1000:.0f} ms)")


def check_accounts(seen: Seen) -> Iterator[Finding]:
    """Whether notebooks may make GPU pods."""
    if not engine_of(seen).has_pods:
        return
    users = [each for each in sorted(users_of(seen))[:MOST_TRIED] if _has_account(seen, each)]
    lacking: list[str] = []
    missing: dict[str, None] = {}
    for namespace in users:
        user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
        lacks = [f"{verb} {what}" for verb, what in RIGHTS if not seen.may(user, namespace, verb, what)]
        if lacks:
            lacking.append(namespace)
            missing |= dict.fromkeys(lacks)
    if lacking:
        yield fail(
            "rights of notebooks",
            f"{ACCOUNT} may not {', '.join(missing)} in {named(lacking)}: no GPU pod can be created",
            "bind it to Kubeflow's ClusterRole kubeflow-edit, as the profile controller does: kubectl -n "
            f"{lacking[0]} get rolebinding {ACCOUNT}",
        )
    elif users:
        yield ok("rights of notebooks", f"{ACCOUNT} may create GPU pods in {named(users)}")


def trial_pod(has_account: bool) -> dict[str, Any]:
    """A notebook's pod as Kubeflow makes it, cut short."""
    limits = {"cpu": "100m", "memory": "64Mi", RESOURCE_AMOUNT: "1"}
    container = {"name": "notebook", "image": "doctor.invalid/none:1", "resources": {"limits": limits}}
    spec: dict[str, Any] = {"containers": [container]}
    if has_account:
        spec["serviceAccountName"] = ACCOUNT
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": TRIAL}, "spec": spec}


def _has_account(seen: Seen, namespace: str) -> bool:
    try:
        return seen.one(f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}") is not None
    except Unseen:
        return False


def _refused(namespace: str, words: str) -> Finding:
    said = f"refused in {namespace}: {words}"
    if "violates PodSecurity" in words:
        todo = (
            f"Kubeflow's notebooks run as baseline: kubectl label namespace {namespace} "
            "pod-security.kubernetes.io/enforce=baseline --overwrite; or set the securityContext that "
            "it names on your own notebooks with a PodDefault"
        )
    elif "exceeded quota" in words or "failed quota" in words:
        todo = f"kubectl -n {namespace} describe quota: free something, or raise it"
    elif NO_WEBHOOK in words:
        todo = "the webhook that it names does not answer: repair that one first"
    else:
        todo = "the message names what refuses it: a policy, a quota or a webhook of the cluster"
    return fail("trial notebook", said, todo)


def _name(data: RawObject) -> str:
    return text(metadata_of(data).get("name"))
