"""What a device plugin of Bitfusion would tell the scheduler: how many units a node offers.

A kubelet leaves extended resources alone that it doesn't know, in capacity as in allocatable ("Advertise
Extended Resources for a Node" in the Kubernetes documentation), so a patch of the node's status is enough:
pods are placed by it, and those that ask for too much stay Pending.
"""

from __future__ import annotations

from tests.cluster.api_client import ApiClient, Refused

RESOURCE = "bitfusion.io/gpu"
"""A hundredth of a GPU of the pool each."""
_ESCAPED = RESOURCE.replace("/", "~1")


def offer(client: ApiClient, node: str, count: int) -> None:
    """Let the node offer `count` units from now on; 0 takes the resource away."""
    path = f"/api/v1/nodes/{node}/status"
    pointers = [f"/status/{where}/{_ESCAPED}" for where in ("capacity", "allocatable")]
    if count:
        client.patch(path, [{"op": "add", "path": each, "value": str(count)} for each in pointers])
        return
    try:
        client.patch(path, [{"op": "remove", "path": each} for each in pointers])
    except Refused as refused:
        if refused.status != 422:  # it offers none
            raise


def holders(client: ApiClient) -> list[str]:
    """The pods that have a node and count units of it, as namespace/name."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in client.get("/api/v1/pods")["items"]
        if pod["spec"].get("nodeName")
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
        and any(RESOURCE in each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    ]
