"""What a scheduler and a kubelet would do, without containers: pods are bound, run, and end when deleted."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.follow import TROUBLE, Follower

NODE = "stub-node"
_INJECTION = "auto-management/bitfusion"


def translated(pod: Object) -> bool:
    """Whether the pod could be scheduled beside a Bitfusion injector.

    One that asks for a size and carries no annotation was not translated, and no node offers the size's key.
    """
    annotations = pod["metadata"].get("annotations") or {}
    return annotations.get(_INJECTION) == "injection" or not size_keys(pod)


def size_keys(pod: Object) -> list[str]:
    """The resources by which the pod's containers ask for a Bitfusion size, which no node offers as such."""
    return sorted(
        {
            key
            for container in pod["spec"]["containers"]
            for key in (container.get("resources") or {}).get("limits") or {}
            if key.startswith("bitfusion.io/") and key != "bitfusion.io/gpu"
        }
    )


class NodeStub:
    """Lets the pods of one namespace, or of all, run on one node that exists on paper. A context manager."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str | None = None,
        schedulable: Callable[[Object], bool] = translated,
        termination_s: float = 0.0,
    ) -> None:
        """`schedulable(pod)` tells which pods get a node; a deleted pod is gone after `termination_s`."""
        self._client = client
        self._schedulable = schedulable
        self._termination_s = termination_s
        self._timers: set[threading.Timer] = set()
        scope = f"/namespaces/{namespace}" if namespace else ""
        self._follower = Follower(client, f"/api/v1{scope}/pods", self._pod_changed)

    def start(self) -> NodeStub:
        node = {
            "metadata": {"name": NODE},
            "status": {"capacity": {"cpu": "64", "memory": "512Gi", "pods": "1000"}},
        }
        try:
            self._client.create("/api/v1/nodes", node)
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise
        self._follower.start()
        return self

    def stop(self) -> None:
        """Pods that run stay as they are; nothing happens to them any more."""
        self._follower.stop()
        for timer in list(self._timers):
            timer.cancel()
            timer.join()
        self._client.close()

    def __enter__(self) -> NodeStub:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _pod_changed(self, kind: str, pod: Object) -> None:
        if kind == "DELETED":
            return
        try:
            if pod["metadata"].get("deletionTimestamp"):
                self._terminate(pod)
            elif not pod["spec"].get("nodeName"):
                self._schedule(pod)
            elif pod["spec"]["nodeName"] == NODE and pod["status"].get("phase") == "Pending":
                self._client.merge(f"{_path(pod)}/status", {"status": _running(pod)})
        except Refused as refused:
            # Gone or changed meanwhile: an event of that is on its way.
            if refused.status not in (404, 409):
                raise

    def _schedule(self, pod: Object) -> None:
        if pod["spec"].get("schedulingGates"):
            return  # as the real scheduler leaves it alone
        if self._schedulable(pod):
            binding = {
                "metadata": {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
            }
            self._client.create(f"{_path(pod)}/binding", binding)
            return
        missing = ", ".join(f"1 Insufficient {key}" for key in size_keys(pod)) or "1 not schedulable"
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/1 nodes are available: {missing}.",
        }
        known = pod["status"].get("conditions") or []
        if not any(each.items() >= condition.items() for each in known):
            others = [each for each in known if each["type"] != condition["type"]]
            body = {
                "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
                "status": {"conditions": [*others, condition]},
            }
            self._client.merge(f"{_path(pod)}/status", body)

    def _terminate(self, pod: Object) -> None:
        if not self._termination_s:
            self._remove(pod)
            return
        timer = threading.Timer(self._termination_s, self._remove_later, (pod,))
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def _remove_later(self, pod: Object) -> None:
        try:
            self._remove(pod)
        except TROUBLE:
            pass  # told again after the next list

    def _remove(self, pod: Object) -> None:
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._client.delete(_path(pod), body)


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _running(pod: Object) -> Object:
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": f"stub://{each['image']}",
            "containerID": f"stub://{pod['metadata']['uid']}/{each['name']}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for each in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": containers,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": now,
    }
