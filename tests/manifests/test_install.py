"""Every overlay on a real apiserver: applied, applied again, its pods let in under *restricted*, removed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster, KubectlFailed
from tests.cluster.rights import may
from tests.manifests.built import (
    CONTROLLER,
    INJECTOR,
    INSTALLED,
    NAMESPACES,
    OVERLAYS,
    PROCESSES,
    Objects,
    pod_template,
    rules,
)
from tests.manifests.installed import cert_manager, folder, installed, kubeflow_namespace, pods_path
from tests.support.waiting import wait_until

Overlays = Mapping[str, Objects]
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
GUEST = "default"  # the account that every namespace has, without any rule


@pytest.fixture(scope="module")
def platform(cluster: Cluster) -> Iterator[None]:
    """What overlays expect to be there: Kubeflow's namespace, cert-manager's kinds."""
    with kubeflow_namespace(cluster), cert_manager(cluster):
        yield


def params(overlays: Sequence[str]) -> list[Any]:
    """Without Kubeflow little is different: `make test` leaves that out."""
    return [pytest.param(each, marks=[pytest.mark.long] * (each == "standalone")) for each in overlays]


@pytest.fixture(scope="module", params=params(OVERLAYS))
def overlay(cluster: Cluster, platform: None, request: pytest.FixtureRequest) -> Iterator[str]:
    """The overlay is installed; its name."""
    name = str(request.param)
    with installed(cluster, name) as said:
        assert "created" in said
        yield name


only_installed = pytest.mark.parametrize("overlay", params(INSTALLED), indirect=True)
each_process = pytest.mark.parametrize("process", PROCESSES)


def test_applying_again_changes_nothing(cluster: Cluster, overlay: str) -> None:
    again = cluster.kubectl("apply", "-k", folder(overlay)).splitlines()
    assert len(again) > 1
    changed = [line for line in again if not line.endswith(" unchanged")]
    # Of a budget kubectl always sends the selector; it is the same, so nothing is written.
    budgets = {f"poddisruptionbudget.policy/{process} configured" for process in PROCESSES}
    assert set(changed) == (budgets if overlay in INSTALLED else set())


def test_applying_warns_of_nothing(cluster: Cluster, overlay: str) -> None:
    # Deprecated versions, unknown fields and Pod Security tell themselves as warnings on stderr.
    done = cluster.try_kubectl("apply", "--server-side", "--force-conflicts", "-k", folder(overlay))
    assert (done.returncode, done.stderr) == (0, "")


@only_installed
@each_process
def test_replicas_are_let_in_where_restricted_is_enforced(
    cluster: Cluster, overlay: str, process: str
) -> None:
    selector = f"app.kubernetes.io/name={process}"

    def pods() -> Any:
        found = cluster.client.get(pods_path(overlay), labelSelector=selector)["items"]
        return found if len(found) == 2 else None

    for pod in wait_until(pods, "both replicas' pods", 20):
        assert pod["spec"]["priority"] == 1_000_000
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert len(pod["spec"]["containers"]) == 1


@only_installed
def test_a_server_side_dry_run_of_our_pod_passes_and_of_a_careless_one_does_not(
    cluster: Cluster, overlays: Overlays, overlay: str
) -> None:
    namespace = NAMESPACES[overlay]
    labels = cluster.client.get(f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = {"apiVersion": "v1", "kind": "Pod", **pod_template(overlays[overlay])}
    pod["metadata"] = {**pod["metadata"], "name": "ours", "namespace": namespace}
    done = cluster.try_kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))
    assert (done.returncode, done.stderr) == (0, "")

    del pod["spec"]["containers"][0]["securityContext"]
    with pytest.raises(KubectlFailed, match=r'violates PodSecurity "restricted:latest"'):
        cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(pod))


@only_installed
@pytest.mark.parametrize("process", [CONTROLLER, pytest.param(INJECTOR, marks=pytest.mark.long)])
def test_the_service_account_can_do_what_its_rules_say_and_nothing_else(
    cluster: Cluster, overlays: Overlays, overlay: str, process: str
) -> None:
    namespace = NAMESPACES[overlay]
    granted = set(rules(overlays[overlay], process))
    names = sorted({name for _, _, _, name, _ in granted} | {"another"})

    def allowed(account: str, place: str, group: str, resource: str, name: str, verb: str) -> bool:
        kind, _, sub = resource.partition("/")
        asked = {"namespace": place, "group": group, "resource": kind, "name": name, "verb": verb}
        user = f"system:serviceaccount:{namespace}:{account}"
        groups = "system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"
        return may(cluster.client, user, groups=groups, **asked, subresource=sub)

    differences = []
    ours = {(group, resource) for _, group, resource, _, _ in granted}
    for group, resource, namespaced in resources(cluster):
        for verb in VERBS:
            for place in (namespace, "default") if namespaced else ("",):
                # Where the controller has no rule at all one question will do.
                for name in names if (group, resource) in ours else [""]:
                    expected = any(
                        (scope, group, resource, given, verb) in granted
                        for scope in (("cluster", "namespace") if place == namespace else ("cluster",))
                        for given in {name, ""}
                    )
                    case = (place, group, resource, name, verb)
                    if allowed(process, *case) != (expected or allowed(GUEST, *case)):
                        differences.append((*case, expected))
    assert differences == []


@only_installed
def test_kubectl_says_the_same(cluster: Cluster, overlay: str) -> None:
    namespace = NAMESPACES[overlay]
    account = f"system:serviceaccount:{namespace}:{CONTROLLER}"

    def can(*question: str) -> str:
        return cluster.try_kubectl("auth", "can-i", *question, f"--as={account}").stdout.strip()

    assert can("patch", "notebooks.kubeflow.org", "-A") == "yes"
    assert can("create", "events", "-n", "default") == "yes"
    assert can("patch", "leases.coordination.k8s.io/bitfusion-notebook-controller", "-n", namespace) == "yes"
    for question in (
        ("delete", "notebooks.kubeflow.org", "-A"),
        ("list", "pods", "-A"),
        ("get", "secrets", "-n", "default"),
        ("list", "secrets", "-n", namespace),
        ("get", "secrets/another", "-n", namespace),
        ("patch", "leases.coordination.k8s.io/another", "-n", namespace),
        ("patch", "mutatingwebhookconfigurations/another"),
        ("list", "mutatingwebhookconfigurations"),
        ("create", "pods", "--subresource=exec", "-A"),
        ("*", "*", "-A"),
    ):
        assert can(*question) == "no", question
    secret = can("get", f"secrets/{CONTROLLER}-ca", "-n", namespace)
    assert secret == ("no" if overlay == "cert-manager" else "yes")


def resources(cluster: Cluster) -> list[tuple[str, str, bool]]:
    """Every resource and sub-resource that the apiserver serves: group, name, whether it is namespaced."""
    found = set()
    groups = [("", "/api/v1")]
    for group in cluster.client.get("/apis")["groups"]:
        groups.append((group["name"], f"/apis/{group['preferredVersion']['groupVersion']}"))
    for group, path in groups:
        try:
            listed = cluster.client.get(path)["resources"]
        except Refused:  # served by somebody who is away
            continue
        found |= {(group, item["name"], item["namespaced"]) for item in listed}
    return sorted(found)
