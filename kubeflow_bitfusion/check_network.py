"""Whether NetworkPolicies of users' namespaces let a notebook reach its GPU pods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of, text
from bitfusion_cluster.doctor.engine import engine_of
from bitfusion_cluster.doctor.finding import Finding, ok, warn
from bitfusion_cluster.doctor.places import NETWORK_POLICIES, gpu_pod_settings
from bitfusion_cluster.doctor.seen import Seen
from bitfusion_cluster.doctor.served import users_of
from bitfusion_pods.places.network_policies import EGRESS, INGRESS, direction

if TYPE_CHECKING:
    from bitfusion_client.kubernetes.raw_objects import RawObject

NOTEBOOK = {"metadata": {"labels": {"notebook-name": "doctor", "app": "doctor", "statefulset": "doctor"}}}
GPU_POD = {"metadata": {"labels": {"bitfusion.io/gpu-pod-of": "doctor-0"}}}
DEFAULT_PORT = 8778
MOST = 5
LET_OUT = (
    "add an egress rule for notebooks: TCP port {port} of the pods of their namespace, and the API server"
)
LET_IN = (
    "kubectl apply -n {namespace} -f manifests/components/gpu-pods-network-policy/network-policy.yaml"
    ", which allows connections from notebooks to port {port}"
)


def check_network(seen: Seen) -> Iterator[Finding]:
    """Only where cells compute in GPU pods. Raises Unseen."""
    if not engine_of(seen).has_pods:
        return
    port = _port(seen)
    policies: dict[str, list[RawObject]] = {}
    for each in seen.items(NETWORK_POLICIES):
        policies.setdefault(text(metadata_of(each).get("namespace")), []).append(each)
    blocked: list[Finding] = []
    for namespace in sorted(users_of(seen)):
        own = policies.get(namespace, [])
        for which, of, peer, words, todo in (
            (EGRESS, NOTEBOOK, GPU_POD, "out of notebooks", LET_OUT),
            (INGRESS, GPU_POD, NOTEBOOK, "into GPU pods", LET_IN),
        ):
            found = direction(own, which, of, peer, namespace, port)
            if found.is_open is False:
                said = f"{namespace}: {found.names} closes TCP port {port} {words}"
                blocked.append(warn("network", said, todo.format(port=port, namespace=namespace)))
    yield from blocked[:MOST]
    if len(blocked) > MOST:
        yield warn(
            "network", f"the same in {len(blocked) - MOST} more cases", "correct these, and check again"
        )
    if not blocked:
        yield ok("network", f"NetworkPolicies let notebooks reach their GPU pods, TCP port {port}")


def _port(seen: Seen) -> int:
    import yaml

    data = mapping(mapping(seen.one(gpu_pod_settings(seen.namespace))).get("data"))
    try:
        port = mapping(yaml.safe_load(text(data.get("pods.yaml")))).get("port")
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):
        port = None  # told by the check of the engine
    return port if isinstance(port, int) else DEFAULT_PORT
