"""Raw Kubernetes objects as `kubectl get -o json` prints them, and entries of a pool beside them."""

from __future__ import annotations

import json
from typing import Any

from bitfusion_client.kernel_state.activity import KernelActivity
from bitfusion_client.kubernetes.names import QUEUE_CONDITION, QUEUE_GATE, RESOURCE_UNITS
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.admin.status_json import status_json
from bitfusion_pool.inventory.placement import Share
from bitfusion_pool.inventory.servers import Device, Server
from bitfusion_pool.ledger.entries import FIRST_TOKEN_NAME, HELD, REMOTE, WAITING, Entry, Holder
from bitfusion_pool.ledger.snapshot import Snapshot

SERVER = Server("gpu1", "gpu1.example", 56001, (Device(0, "V100", 16160), Device(1, "V100", 16160)))


def node(
    name: str = "n1", units: object = "200", kubelet: str = "v1.34.4", ready: str = "True"
) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-25T10:30:00Z"}
    status: dict[str, Any] = {
        "nodeInfo": {"kubeletVersion": kubelet},
        "allocatable": {"cpu": "4"},
        "conditions": [condition],
    }
    if units is not None:
        status["allocatable"][RESOURCE_UNITS] = units
    return {"kind": "Node", "metadata": {"name": name}, "status": status}


def pod(
    name: str = "mnist-0",
    namespace: str = "team-a",
    units: object = "50",
    notebook: str = "mnist",
    node: str = "n1",
    phase: str = "Running",
    gates: tuple[str, ...] = (),
    message: str | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A pod; without a gate it has been lifted by the queue, unless `message` is given.

    With the queue's gate `message` is why it waits, in its condition; None: it has no condition yet.
    """
    conditions = []
    if QUEUE_GATE in gates and message is not None:
        conditions.append(
            {"type": QUEUE_CONDITION, "status": "False", "reason": "WaitsForPool", "message": message}
        )
    elif QUEUE_GATE not in gates and message is None:
        conditions.append({"type": QUEUE_CONDITION, "status": "True", "reason": "Lifted", "message": "kept"})
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"limits": {RESOURCE_UNITS: units}}}]}
    if node:
        spec["nodeName"] = node
    if gates:
        spec["schedulingGates"] = [{"name": gate} for gate in gates]
    labels = {"notebook-name": notebook} if notebook else {}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, **metadata},
        "spec": spec,
        "status": {"phase": phase, "conditions": conditions},
    }


def gated(name: str = "big-0", message: str | None = "", **more: Any) -> dict[str, Any]:
    notebook = name.removesuffix("-0")
    return pod(
        name, notebook=notebook, node="", phase="Pending", gates=(QUEUE_GATE,), message=message, **more
    )


def queue_pod(ready: str = "True", account: str = "bitfusion-queue", **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": "bitfusion-queue-7d9f", "namespace": "kubeflow", **metadata},
        "spec": {"serviceAccountName": account, "containers": [{"name": "queue"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


def quota(
    namespace: str = "team-a",
    used: object = "50",
    hard: object = "120",
    key: str = f"requests.{RESOURCE_UNITS}",
    **spec: Any,
) -> dict[str, Any]:
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"hard": {key: hard}, **spec},
        "status": {"hard": {key: hard}, "used": {key: used}},
    }


SECONDS = 999.0
"""For so long the entries below are held."""


def entry(
    user: str = "cluster/team-a",
    host: str = "team-a/mnist",
    mib: int = 8080,
    state: str = HELD,
    number: int = 1,
    gpus: int = 1,
    remote: bool = True,
    activity: KernelActivity | None = None,
) -> Entry:
    uid = FIRST_TOKEN_NAME - 1 if remote else 1000
    shares = tuple(Share(SERVER.key, gpu, mib) for gpu in range(gpus)) if state == HELD else ()
    return Entry(
        *(number, f"id{number}", state, REMOTE, GpuRequest(gpus)),
        Holder(f"{host}: x.ipynb", user, 7, host, uid),
        *((SERVER.key,), 1000.0, 1001.0 if state == HELD else None, None, shares),
        activity=activity,
    )


def waiting(**more: Any) -> Entry:
    return entry(state=WAITING, **more)


def status(*entries: Entry, left_out: int = 0) -> dict[str, Any]:
    """What `bitfusion-pool status --json` prints of a pool with these."""
    held = tuple(one for one in entries if one.state == HELD)
    waits = tuple(one for one in entries if one.state == WAITING)
    free = {(SERVER.key, device.number): 0 for device in SERVER.devices}
    pool = Snapshot(
        *("/pool", 2000.0, 1.0, (SERVER,), held, waits, free, ()),
        of_service=True,
        left_out=left_out,
    )
    printed: dict[str, Any] = json.loads(json.dumps(status_json(pool)))
    return printed
