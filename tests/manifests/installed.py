"""Applying an overlay to the test cluster and taking it away again, as an admin would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE
from tests.manifests.built import CONTROLLER, MANIFESTS, NAMESPACES, POD_WEBHOOKS, PROCESSES, WEBHOOKS
from tests.support.waiting import wait_until

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
def namespaces(cluster: Cluster, wanted: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """Namespaces of those names and labels; at the end gone, so that the next ones may have their names."""
    path = "/api/v1/namespaces"
    for name, labels in wanted.items():
        cluster.client.create(path, {"metadata": {"name": name, "labels": dict(labels)}})
    try:
        accounts = [f"{path}/{name}/serviceaccounts/default" for name in wanted]
        wait_until(lambda: all(cluster.client.exists(account) for account in accounts), limit_s=20)
        yield
    finally:
        for name in wanted:
            # Bound to a node that exists on paper only, pods would keep their namespace.
            everything = ("notebooks,statefulsets,deployments,replicasets,pods", "--all", "-n", name)
            cluster.kubectl("delete", *everything, "--force", "--grace-period=0")
            cluster.client.delete(f"{path}/{name}")
        wait_until(lambda: not any(cluster.client.exists(f"{path}/{name}") for name in wanted), limit_s=40)


@contextmanager
def kubeflow_namespace(cluster: Cluster, profile: str = "") -> Iterator[None]:
    """The namespace that Kubeflow's own manifests make, enforcing *restricted* as they do since 1.10.

    With `profile` also a user's, as Kubeflow's profile controller makes it, and one for monitoring.
    """
    wanted: dict[str, Mapping[str, str]] = {"kubeflow": RESTRICTED}
    if profile:
        wanted |= {profile: PROFILE, "monitoring": {}}
    with namespaces(cluster, wanted):
        if profile:
            accounts = f"/api/v1/namespaces/{profile}/serviceaccounts"
            cluster.client.create(accounts, {"metadata": {"name": "default-editor"}})
        yield


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
    cluster.kubectl("delete", "--ignore-not-found", "mutatingwebhookconfiguration", WEBHOOKS, POD_WEBHOOKS)
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-k", folder(overlay))
    if overlay in NAMESPACES:
        # A pod that was given to a node which exists on paper only waits for its kubelet's word for ever.
        labels = f"app.kubernetes.io/name in ({', '.join(PROCESSES)})"
        pods = ("pods", "-n", NAMESPACES[overlay], "-l", labels)
        wait_until(lambda: not cluster.client.get(deployments(overlay))["items"], limit_s=20)
        cluster.kubectl("delete", *pods, "--ignore-not-found", "--force", "--grace-period=0")
        # What the program made itself, as docs/how-to/remove.md says.
        secrets = [f"secret/{CONTROLLER}-certificate"]
        secrets += [f"secret/{process}-{name}" for process in PROCESSES for name in ("ca", "serving")]
        made = (*secrets, *(f"lease/{process}" for process in PROCESSES))
        cluster.kubectl("delete", "-n", NAMESPACES[overlay], "--ignore-not-found", *made)
    cluster.kubectl("delete", "--ignore-not-found", "-k", folder(overlay))


def deployments(overlay: str) -> str:
    return f"/apis/apps/v1/namespaces/{NAMESPACES[overlay]}/deployments"


def pods_path(overlay: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACES[overlay]}/pods"
