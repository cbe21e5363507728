"""The rights of `bitfusion-queue`, and the policies beside them, applied to the test cluster.

As the component makes them on overlay *kubeflow*, but for a namespace of their own: the program itself is a
process of the test's, or nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from bitfusion_client.kubernetes.names import QUEUE_GATE
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.our_controller import with_components
from tests.support.waiting import wait_until

QUEUE = "bitfusion-queue"
ACCOUNT_POLICY, GATE_POLICY = f"{QUEUE}-account", f"{QUEUE}-gate"
_NOT_ITS_PODS = ("Deployment", "PodDisruptionBudget", "NetworkPolicy")


def denied_by(policy: str) -> str:
    """How the API server begins a policy's refusal."""
    return f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: "


@contextmanager
def queue_rights(cluster: Cluster) -> Iterator[str]:
    """The account with its rights and the policies in force; gives its namespace."""
    namespace = cluster.new_namespace(prefix="bitfusion")
    objects = [
        each
        for each in with_components(cluster, "kubeflow", "queue")
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/name") == QUEUE
        and each["kind"] not in _NOT_ITS_PODS
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    text = text.replace(":kubeflow:", f":{namespace}:").replace('"kubeflow"', json.dumps(namespace))
    cluster.kubectl("apply", "-f", "-", input=text)
    try:
        wait_until(lambda: _in_force(cluster, namespace), "the policies are in force", 30)
        yield namespace
    finally:
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", input=text)


def asking_pod(name: str, gates: tuple[str, ...] = (QUEUE_GATE,), units: int | str = 50) -> Object:
    """A pod as the injector leaves it, without the client."""
    limits = {"limits": {"bitfusion.io/gpu": str(units)}} if units else {}
    spec: Object = {"containers": [{"name": "nb", "image": "i", "resources": limits}]}
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"metadata": {"name": name}, "spec": spec}


def _in_force(cluster: Cluster, namespace: str) -> bool:
    """An API server begins to judge by policies a moment after it has them."""
    queue = cluster.client_as(cluster.service_account_token(namespace, QUEUE))
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return _refused_by(ACCOUNT_POLICY, queue, leases, {"metadata": {"name": "x"}}) and _refused_by(
        GATE_POLICY, cluster.client, f"/api/v1/namespaces/{namespace}/pods", asking_pod("x", ())
    )


def _refused_by(policy: str, client: ApiClient, path: str, body: Object) -> bool:
    try:
        client.create(path, body, dryRun="All")
    except Refused as refused:
        return denied_by(policy) in refused.message
    return False
