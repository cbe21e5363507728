"""Paths (URLs) in the Kubernetes API: Notebooks, pods and their owners, Events, Leases, Secrets, webhooks.

A name may be what a tenant wrote into a label or an owner reference, which no API server has looked at when
admission does: each stays one segment, so that ``../../other/notebooks/x`` leads nowhere else.
"""

from __future__ import annotations

from urllib.parse import quote

NOTEBOOKS = "/apis/kubeflow.org/v1/notebooks"  # of all namespaces
STATEFULSETS = "/apis/apps/v1/statefulsets"  # of all namespaces
NAMESPACES = "/api/v1/namespaces"
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"  # of all namespaces
EVENTS = "/api/v1/events"  # of all namespaces
RESOURCE_QUOTAS = "/api/v1/resourcequotas"  # of all namespaces


def notebook_path(namespace: str, name: str) -> str:
    """One Notebook, by a name that may be no Notebook's: nobody looks at those in an ownerReference."""
    return f"/apis/kubeflow.org/v1/namespaces/{_segment(namespace)}/notebooks/{_segment(name)}"


def statefulset_path(namespace: str, name: str) -> str:
    """One StatefulSet."""
    return f"/apis/apps/v1/namespaces/{_segment(namespace)}/statefulsets/{_segment(name)}"


def pod_path(namespace: str, name: str) -> str:
    """One pod."""
    return f"/api/v1/namespaces/{_segment(namespace)}/pods/{_segment(name)}"


def deployment_path(namespace: str, name: str) -> str:
    """One Deployment."""
    return f"/apis/apps/v1/namespaces/{_segment(namespace)}/deployments/{_segment(name)}"


def config_map_path(namespace: str, name: str) -> str:
    """One ConfigMap."""
    return f"/api/v1/namespaces/{_segment(namespace)}/configmaps/{_segment(name)}"


def events_path(namespace: str) -> str:
    """The Events of a namespace."""
    return f"/api/v1/namespaces/{_segment(namespace)}/events"


def cron_job_path(namespace: str, name: str) -> str:
    """One CronJob."""
    return f"/apis/batch/v1/namespaces/{_segment(namespace)}/cronjobs/{_segment(name)}"


def leases_path(namespace: str) -> str:
    """The Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{_segment(namespace)}/leases"


def secrets_path(namespace: str) -> str:
    """The Secrets of a namespace."""
    return f"/api/v1/namespaces/{_segment(namespace)}/secrets"


def config_maps_path(namespace: str) -> str:
    """The ConfigMaps of a namespace."""
    return f"/api/v1/namespaces/{_segment(namespace)}/configmaps"


def webhook_configuration_path(name: str) -> str:
    """One MutatingWebhookConfiguration, which belongs to no namespace."""
    return f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{_segment(name)}"


def _segment(name: str) -> str:
    return quote(name, safe="", errors="replace")
