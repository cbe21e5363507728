"""What dashboards and alerts may ask of kube-state-metrics: names and labels, for tests without one.

`tests/cluster/test_gpu_pods_seen.py` compares those of GPU pods with a real one's.
"""

from __future__ import annotations

_POD = ("namespace", "pod")
OF_GPU_PODS = {
    "kube_node_spec_unschedulable": ("node",),
    "kube_node_status_allocatable": ("node", "resource", "unit"),
    "kube_node_status_condition": ("node", "condition", "status"),
    "kube_pod_annotations": (*_POD, "annotation_bitfusion_io_state"),
    "kube_pod_container_resource_requests": (*_POD, "container", "node", "resource"),
    "kube_pod_container_status_terminated_reason": (*_POD, "container", "reason"),
    "kube_pod_created": _POD,
    "kube_pod_deletion_timestamp": _POD,
    "kube_pod_info": (*_POD, "node"),
    "kube_pod_owner": (*_POD, "owner_kind", "owner_name"),
    "kube_pod_status_phase": (*_POD, "phase"),
    "kube_pod_status_reason": (*_POD, "reason"),
    "kube_pod_status_scheduled_time": _POD,
    "kube_resourcequota": ("namespace", "resourcequota", "resource", "type"),
}
OTHERS = {
    f"kube_cronjob_status_last_{name}_time": ("namespace", "cronjob") for name in ("schedule", "successful")
}


def labels_of_metrics() -> dict[str, frozenset[str]]:
    """The labels by the name of a metric, as `test_metrics_docs.documented` has those of ours."""
    return {name: frozenset(labels) for name, labels in {**OF_GPU_PODS, **OTHERS}.items()}
