"""Objects as the cluster holds them, in the shapes that Kubeflow and Kubernetes give them."""

from __future__ import annotations

from typing import Any

from tests.support.notebooks import form_notebook, notebook_stateful_set, stateful_set_pod

NOTEBOOKS = "/apis/kubeflow.org/v1/notebooks"
STATEFULSETS = "/apis/apps/v1/statefulsets"
PODS = "/api/v1/pods"
EVENTS = "/api/v1/events"
LEASES = "/apis/coordination.k8s.io/v1/leases"

OS, VERSION, MANAGEMENT = "bitfusion-client/os", "bitfusion-client/version", "auto-management/bitfusion"
REQUEST, LABEL = "bitfusion.io/request", "bitfusion.io/requested"
PENDING, RUNNING = "bitfusion.io/pending", "bitfusion.io/running-request"
CLIENT = {MANAGEMENT: "injection", OS: "ubuntu22", VERSION: "454"}

Object = dict[str, Any]


def notebook(
    name: str = "nb",
    limits: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    namespace: str = "ann",
    uid: str | None = None,
) -> Object:
    """A Notebook as the form posts it and the API server stores it; `limits` are the Bitfusion ones."""
    made = form_notebook(name, limits, annotations, namespace=namespace, uid=uid or f"uid-of-{name}")
    made["metadata"]["labels"] = labels
    if labels is None:
        del made["metadata"]["labels"]
    return made


def admitted(
    name: str = "nb", limits: dict[str, Any] | None = None, annotations: dict[str, str] | None = None
) -> Object:
    """A Notebook that asks and that admission has seen."""
    return notebook(
        name, limits or {"bitfusion.io/gpu-amount": "2"}, {**CLIENT, **(annotations or {})}, {LABEL: "true"}
    )


def statefulset(
    of: Object,
    replicas: int = 1,
    ready: bool = True,
    annotations: dict[str, str] | None = None,
    revising: bool = False,
    unnoticed: bool = False,
) -> Object:
    """The StatefulSet of a Notebook as the notebook controller makes it.

    Args:
        of: The Notebook.
        replicas: Wanted.
        ready: Whether its pod is.
        annotations: Of its template.
        revising: Its pod is older than the template.
        unnoticed: It is, but the first status came after the change: both revisions are the new one.
    """
    return notebook_stateful_set(
        of,
        annotations,
        replicas=replicas,
        readyReplicas=int(ready and replicas > 0),
        updateRevision="r2" if revising else "r1",
        updatedReplicas=0 if revising or unnoticed else replicas,
    )


def pod(
    of: Object,
    annotations: dict[str, str] | None = None,
    phase: str = "Pending",
    node: str | None = None,
    limits: dict[str, Any] | None = None,
) -> Object:
    """The pod of a StatefulSet; its limits are the template's unless an injector translated them."""
    return stateful_set_pod(of, annotations, phase=phase, node=node, limits=limits)
