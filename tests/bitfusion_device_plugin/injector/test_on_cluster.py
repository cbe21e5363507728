"""Injected pods before a real API server, as dry runs: what it takes before, it takes with the client."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bitfusion_device_plugin.injector.injection.injected_pod import Refusal, injected_pod
from bitfusion_device_plugin.injector.injection.pod_patch import difference
from tests.bitfusion_device_plugin.injector.pods import HALF, Object, container, pod
from tests.bitfusion_device_plugin.injector.random_pods import SETTINGS, Case, case
from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster
from tests.support.rounds import rounds

PODS = rounds(250, 1000)
MOST_TRIED = 5 * PODS
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}


def namespace_with_limits(cluster: Cluster, labels: dict[str, str]) -> str:
    """Where each container must say what it takes, and has it said if it does not."""
    namespace = cluster.new_namespace(labels, "injector")
    limits = {"cpu": "8", "memory": "64Gi"}
    quota = dict.fromkeys(("limits.cpu", "limits.memory", "requests.cpu", "requests.memory"), "1000Ti")
    item = {"type": "Container", "default": limits, "defaultRequest": {"cpu": "10m", "memory": "1Mi"}}
    for plural, spec in (("limitranges", {"limits": [item]}), ("resourcequotas", {"hard": quota})):
        cluster.client.create(
            f"/api/v1/namespaces/{namespace}/{plural}", {"metadata": {"name": "all"}, "spec": spec}
        )
    return namespace


def dry_run(cluster: Cluster, namespace: str, made: Object) -> Object | str:
    """The pod as the API server makes it, or why it does not."""
    try:
        return cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", made, dryRun="All")
    except Refused as refused:
        return refused.message
    except UnicodeEncodeError as error:
        return str(error)  # no program can send it


def check_on_cluster(cluster: Cluster, namespace: str, one: Case, seen: Object) -> bool:
    """Whether a pod, as the API server shows it to webhooks, was injected; it is let in then."""
    result = injected_pod(seen, namespace, one.settings, one.notebook)
    if isinstance(result, Refusal) or result is seen:
        return False
    after = dry_run(cluster, namespace, result)
    assert isinstance(after, dict), f"{after}\n{result}"
    # with its defaults, the ServiceAccount's mounts and the LimitRange's resources in our containers, too
    again = injected_pod(after, namespace, one.settings, one.notebook)
    assert not isinstance(again, Refusal), again.message
    assert difference(after, again) == []
    return True


@pytest.mark.long
@pytest.mark.timeout(240)
def test_random_pods_are_taken_where_they_were_taken_before(cluster: Cluster) -> None:
    restricted = namespace_with_limits(cluster, RESTRICTED)
    privileged = namespace_with_limits(cluster, PRIVILEGED)
    done: Counter[str] = Counter()
    for number in range(MOST_TRIED):
        if done.total() == PODS:
            break
        one = case(3, number)
        for namespace in (restricted, privileged):
            seen = dry_run(cluster, namespace, one.pod)
            if isinstance(seen, dict):
                done[namespace] += check_on_cluster(cluster, namespace, one, seen)
                break
    assert done.total() == PODS, done
    assert done[restricted] > PODS / 4, done
    assert done[privileged] > PODS / 4, done


@pytest.mark.parametrize("settings", SETTINGS[1:3], ids=["stand-in", "vmware"])
def test_an_ordinary_pod_is_taken_where_restricted_is_enforced(cluster: Cluster, settings: Any) -> None:
    namespace = namespace_with_limits(cluster, RESTRICTED)
    context = {
        "runAsUser": 1000,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "fsGroup": 100,
    }
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    before = pod(container({HALF: "1"}, securityContext=security), securityContext=context, notebook="nb")
    seen = dry_run(cluster, namespace, before)
    assert isinstance(seen, dict), seen
    assert check_on_cluster(cluster, namespace, Case(before, namespace, settings, None), seen)
