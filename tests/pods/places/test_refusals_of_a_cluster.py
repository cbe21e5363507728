"""What a real API server answers to pods that it does not take, in our words."""

from __future__ import annotations

from typing import Any

import pytest

from bitfusion_pods.places.refusals import (
    ERROR,
    EXISTS,
    POLICY,
    QUOTA,
    RETRY,
    RIGHTS,
    WAITS,
    Refusal,
    refusal_of,
)
from tests.cluster.api_client import ApiClient, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.quota import until_quota_refuses

Raw = dict[str, Any]
GPU = "nvidia.com/gpu"


def gpu_pod(limits: Raw, name: str = "gpu") -> Raw:
    return {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "program", "image": "none", "resources": {"limits": limits, "requests": limits}}
            ],
        },
    }


def refused(client: ApiClient, namespace: str, pod: Raw, ours_hold: bool = False) -> Refusal:
    """What the API server says of it, translated."""
    with pytest.raises(Refused) as caught:
        client.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    error = caught.value
    return refusal_of(error.status, error.reason, error.message, (GPU,), ours_hold)


def with_quota(cluster: Cluster, hard: Raw, too_much: Raw) -> str:
    """A namespace with this quota, once it refuses a pod with these limits."""
    namespace = cluster.new_namespace()
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.client.create(path, {"metadata": {"name": "kf-resource-quota"}, "spec": {"hard": hard}})
    until_quota_refuses(cluster.client, namespace, gpu_pod(too_much), quota="kf-resource-quota")
    return namespace


def test_a_quota_of_gpus_waits_until_one_is_given_back(cluster: Cluster) -> None:
    namespace = with_quota(cluster, {f"requests.{GPU}": "1"}, {GPU: "2"})
    path = f"/api/v1/namespaces/{namespace}/pods"
    cluster.client.create(path, gpu_pod({GPU: "1"}, "first"))
    found = refused(cluster.client, namespace, gpu_pod({GPU: "1"}))
    assert (found.kind, found.reason) == (WAITS, QUOTA)
    assert found.words == "quota kf-resource-quota: 1 of 1 GPUs are in use"
    never = refused(cluster.client, namespace, gpu_pod({GPU: "2"}))
    assert (never.kind, never.words) == (ERROR, "quota kf-resource-quota: 2 GPUs requested, 1 allowed")
    again = refused(cluster.client, namespace, gpu_pod({GPU: "1"}, "first"))
    assert (again.kind, again.reason) in (
        (RETRY, EXISTS),
        (WAITS, QUOTA),
    )  # the API server may look at either first


def test_a_quota_of_memory_waits_only_on_pods_of_ours(cluster: Cluster) -> None:
    namespace = with_quota(cluster, {"requests.memory": "1Gi"}, {"memory": "2Gi"})
    cluster.client.create(f"/api/v1/namespaces/{namespace}/pods", gpu_pod({"memory": "1Gi"}, "first"))
    small = gpu_pod({"memory": "512Mi"})
    words = "quota kf-resource-quota: 1Gi of 1Gi requests.memory are in use, 512Mi more requested"
    assert refused(cluster.client, namespace, small).kind == ERROR
    found = refused(cluster.client, namespace, small, ours_hold=True)
    assert (found.kind, found.words) == (WAITS, words)
    silent = refused(cluster.client, namespace, gpu_pod({}))
    assert silent.kind == ERROR
    assert silent.words.startswith(
        "a quota requires each container to state what it needs: kf-resource-quota: must specify"
    )


def test_a_viewer_is_told_what_to_ask_for(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    client = cluster.client_as(cluster.service_account_token(namespace, "default"))
    found = refused(client, namespace, gpu_pod({GPU: "1"}))
    assert (found.kind, found.reason) == (ERROR, RIGHTS)
    assert found.words == (
        f"this notebook may not create pods in the namespace {namespace}: "
        'its service account "default" has no such right'
    )
    assert f"kubeflow-edit for {namespace}:default" in found.next_step


def test_pod_security_says_what_it_wants(cluster: Cluster) -> None:
    namespace = cluster.new_namespace({"pod-security.kubernetes.io/enforce": "restricted"})
    found = refused(cluster.client, namespace, gpu_pod({GPU: "1"}))
    assert (found.kind, found.reason) == (ERROR, POLICY)
    assert found.words.startswith(
        "the namespace's Pod Security (restricted:latest) refuses the pod: allowPrivilegeEscalation != false"
    )


def test_a_limit_range_says_what_it_wants(cluster: Cluster) -> None:
    namespace = cluster.new_namespace()
    limits = [{"type": "Container", "max": {"cpu": "2"}}]
    path = f"/api/v1/namespaces/{namespace}/limitranges"
    cluster.client.create(path, {"metadata": {"name": "small"}, "spec": {"limits": limits}})
    found = refused(cluster.client, namespace, gpu_pod({"cpu": "4"}))
    assert (found.kind, found.reason) == (ERROR, POLICY)
    assert found.words.startswith(
        "the namespace's LimitRange refuses the pod: maximum cpu usage per Container is 2, but limit is 4"
    )


def test_an_invalid_pod_is_told_in_the_clusters_words(cluster: Cluster) -> None:
    found = refused(cluster.client, cluster.new_namespace(), gpu_pod({GPU: "0.5"}))
    assert found.kind == ERROR
    assert found.words.startswith('the cluster refuses the pod: Pod "gpu" is invalid: ')
