"""What there is in a cluster: every object that can be listed, by kind, namespace and name."""

from __future__ import annotations

from tests.cluster.cluster import Cluster

# Kubernetes' own, which come and go.
PASSING = {"events", "endpoints", "endpointslices", "componentstatuses", "ipaddresses", "leasecandidates"}


def everything(cluster: Cluster) -> set[str]:
    """As ``resource namespace/name``."""
    groups = ["/api/v1"]
    for group in cluster.client.get("/apis")["groups"]:
        groups.append(f"/apis/{group['preferredVersion']['groupVersion']}")
    found = set()
    for path in groups:
        for resource in cluster.client.get(path)["resources"]:
            name = resource["name"]
            if "list" not in resource["verbs"] or "/" in name or name in PASSING:
                continue
            for item in cluster.client.get(f"{path}/{name}")["items"]:
                metadata = item["metadata"]
                found.add(f"{name} {metadata.get('namespace', '')}/{metadata['name']}")
    return found
