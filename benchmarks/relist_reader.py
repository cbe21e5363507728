"""One way of reading all Notebooks and StatefulSets, in a process of its own, for ``benchmarks.relist``.

``python -m benchmarks.relist_reader WAY KUBECONFIG NOTEBOOKS``; prints one line of JSON. Ways: ``ours``, the
controller's reconciler: both lists, every notebook looked at, then both lists a second time, each of which
expires after its second page and is begun again; ``dynamic`` and
``custom``, loops of a few lines over the official client, which keep what they read.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PAGE = 500
LIMIT_S = 300.0
# The client imports it where it is installed, which is in the tests' environment and not in the image: 20 MB.
sys.modules["kubernetes_validate"] = None  # type: ignore[assignment] # what makes its import fail
RESOURCES = ("notebooks", "statefulsets", "namespaces", "resourcequotas")


def peak_bytes() -> int:
    """The most memory this process has had (VmHWM)."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def ours(kubeconfig: str, notebooks: int) -> dict[str, Any]:
    """The reconciler, with everything else that its process imports."""
    from prometheus_client import CollectorRegistry

    import notebook_controller_patch.controller
    from benchmarks.expiring_api import ExpiringApi
    from bitfusion_client.kubernetes.client_images import DEFAULT_RULES
    from bitfusion_cluster.leading.election import Candidate
    from bitfusion_cluster.monitoring.metrics import WatchMetrics
    from notebook_controller_patch.reconcile.context import ReconcileContext
    from notebook_controller_patch.reconcile.metrics import ReconcileMetrics
    from notebook_controller_patch.reconcile.service import ReconcileService

    assert notebook_controller_patch.controller  # its memory counts
    sent: list[float] = []
    registry = CollectorRegistry()
    api = ExpiringApi.load(kubeconfig, lambda method, path: sent.append(time.monotonic()))
    service = ReconcileService(
        ReconcileContext(
            api=api,
            candidate=Candidate("default", f"relist-{time.monotonic_ns()}", "relist"),
            rules=lambda: DEFAULT_RULES,
            metrics=ReconcileMetrics(registry),
            watch_metrics=WatchMetrics(registry),
        )
    )

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(name, labels) or 0.0

    def lists(count: int) -> bool:
        return all(value("bitfusion_watch_lists_total", resource=each) >= count for each in RESOURCES)

    def looked() -> float:
        return value("bitfusion_reconcile_runs_total", result="done")

    began = time.monotonic()
    service.start()
    _wait(lambda: lists(1) and looked() >= notebooks)
    first_s, first_sent = time.monotonic() - began, list(sent)
    writes = sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "bitfusion_reconcile_actions_total"
    )
    first_peak = peak_bytes()
    _wait(lambda: api.open_streams() == len(RESOURCES))
    again = time.monotonic()
    api.expire()
    _wait(lambda: lists(2))
    again_s = time.monotonic() - again
    queries = [moment for moment in sent if moment >= again]
    service.stop(10)
    return {
        "seconds": first_s,
        "queries": len(first_sent),
        "busiest": _busiest(first_sent),
        "peak": first_peak,
        "again_seconds": again_s,
        "again_queries": len(queries),
        "lists_expired": api.lists_expired,
        "again_busiest": _busiest(queries),
        "again_peak": peak_bytes(),
        "writes": writes,
    }


def dynamic(kubeconfig: str, notebooks: int) -> dict[str, Any]:
    """The official client's DynamicClient."""
    from kubernetes import config
    from kubernetes.dynamic import DynamicClient

    api = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call] # annotated in part
    client = DynamicClient(api)  # type: ignore[no-untyped-call] # annotated in part
    kinds = [("kubeflow.org/v1", "Notebook"), ("apps/v1", "StatefulSet")]
    resources = [client.resources.get(api_version=version, kind=kind) for version, kind in kinds]
    began = time.monotonic()
    kept: list[Any] = []
    queries = 0
    for resource in resources:
        token = None
        while True:
            page = resource.get(limit=PAGE, _continue=token)
            queries += 1
            kept += page.items
            token = page.metadata.get("continue")
            if not token:
                break
    return _plain(began, queries, kept, notebooks)


def custom(kubeconfig: str, notebooks: int) -> dict[str, Any]:
    """The official client's CustomObjectsApi for Notebooks and its typed AppsV1Api for StatefulSets."""
    from kubernetes import client, config

    api = config.new_client_from_config(kubeconfig)  # type: ignore[no-untyped-call] # annotated in part
    objects, apps = client.CustomObjectsApi(api), client.AppsV1Api(api)
    began = time.monotonic()
    kept: list[Any] = []
    queries = 0
    token: str | None = None
    while True:
        page: Any = objects.list_cluster_custom_object(
            "kubeflow.org", "v1", "notebooks", limit=PAGE, _continue=token
        )
        queries += 1
        kept += page["items"]
        token = page["metadata"].get("continue")
        if not token:
            break
    while True:
        typed: Any = apps.list_stateful_set_for_all_namespaces(limit=PAGE, _continue=token)
        queries += 1
        kept += typed.items
        token = typed.metadata.var_continue
        if not token:
            break
    return _plain(began, queries, kept, notebooks)


WAYS: dict[str, Callable[[str, int], dict[str, Any]]] = {"ours": ours, "dynamic": dynamic, "custom": custom}


def _plain(began: float, queries: int, kept: list[Any], notebooks: int) -> dict[str, Any]:
    seconds = time.monotonic() - began
    if len(kept) < 2 * notebooks:
        raise RuntimeError(f"{len(kept)} objects read, {2 * notebooks} are there")
    return {"seconds": seconds, "queries": queries, "peak": peak_bytes()}


def _busiest(moments: list[float]) -> int:
    """The most requests within any one second."""
    return max((sum(1 for other in moments if 0 <= other - one < 1) for one in moments), default=0)


def _wait(check: Callable[[], bool]) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + LIMIT_S
    while not check():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done within {LIMIT_S:.0f} s")
        pause.wait(0.02)


if __name__ == "__main__":
    way, path, count = sys.argv[1:]
    print(json.dumps(WAYS[way](path, int(count))))
