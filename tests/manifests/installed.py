"""Applying an overlay to the test cluster and taking it away again, as an admin would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.cluster import Cluster, eventually
from tests.manifests.built import CONTROLLER, MANIFESTS, NAMESPACES, WEBHOOKS

RESTRICTED = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/warn": "restricted",
    "pod-security.kubernetes.io/audit": "restricted",
}

# cert-manager's own CRDs are no part of this project: two of the same names, which take any spec.
CERT_MANAGER_CRDS = "\n---\n".join(
    f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.cert-manager.io}}
spec:
  group: cert-manager.io
  names: {{kind: {kind}, plural: {plural}, singular: {singular}}}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
    for kind, plural, singular in (
        ("Issuer", "issuers", "issuer"),
        ("Certificate", "certificates", "certificate"),
    )
)


def folder(overlay: str) -> str:
    return str(MANIFESTS / "overlays" / overlay)


@contextmanager
def kubeflow_namespace(cluster: Cluster) -> Iterator[None]:
    """The namespace that Kubeflow's own manifests make, enforcing *restricted* as they do since 1.10."""
    body = {"metadata": {"name": "kubeflow", "labels": RESTRICTED}}
    cluster.client.create("/api/v1/namespaces", body)
    try:
        account = "/api/v1/namespaces/kubeflow/serviceaccounts/default"
        eventually(lambda: cluster.client.exists(account), 20)
        yield
    finally:
        cluster.client.delete("/api/v1/namespaces/kubeflow")
        eventually(lambda: not cluster.client.exists("/api/v1/namespaces/kubeflow"), 40)


@contextmanager
def cert_manager(cluster: Cluster) -> Iterator[None]:
    cluster.kubectl("apply", "-f", "-", input=CERT_MANAGER_CRDS)
    try:
        cluster.kubectl(
            "wait",
            "--for=condition=Established",
            "crd/issuers.cert-manager.io",
            "crd/certificates.cert-manager.io",
        )
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", input=CERT_MANAGER_CRDS)


@contextmanager
def installed(cluster: Cluster, overlay: str) -> Iterator[str]:
    """The overlay applied; gives what kubectl said. Taken away at the end, webhooks first."""
    try:
        yield cluster.kubectl("apply", "-k", folder(overlay))
    finally:
        remove(cluster, overlay)


def remove(cluster: Cluster, overlay: str) -> None:
    cluster.kubectl("delete", "--ignore-not-found", "mutatingwebhookconfiguration", WEBHOOKS)
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-k", folder(overlay))
    if overlay in NAMESPACES:
        # A pod that was given to a node which exists on paper only waits for its kubelet's word for ever.
        pods = ("pods", "-n", NAMESPACES[overlay], "-l", f"app.kubernetes.io/name={CONTROLLER}")
        eventually(lambda: not cluster.client.get(deployments(overlay))["items"], 20)
        cluster.kubectl("delete", *pods, "--ignore-not-found", "--force", "--grace-period=0")
        # What the program made itself, as docs/kubeflow.md says.
        made = (f"secret/{CONTROLLER}-ca", f"lease/{CONTROLLER}")
        cluster.kubectl("delete", "-n", NAMESPACES[overlay], "--ignore-not-found", *made)
    cluster.kubectl("delete", "--ignore-not-found", "-k", folder(overlay))


def deployments(overlay: str) -> str:
    return f"/apis/apps/v1/namespaces/{NAMESPACES[overlay]}/deployments"


def pods_path(overlay: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACES[overlay]}/pods"
