"""A cluster in which all is well: Kubeflow's form, our installation for GPU pods, a node, two users.

The programs are processes here (`tests.manifests.stand_in`), nodes exist on paper, the API server is real.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from kubeflow_bitfusion.form_in_cluster import KEPT
from tests.cluster.cluster import Cluster
from tests.cluster.notebooks import PROFILE
from tests.jupyter_ext.spawner.kubeflow_manifests import build, write_manifests
from tests.manifests.built import PROCESSES, build_own
from tests.manifests.installed import kubeflow_namespace, namespaces, remove
from tests.manifests.stand_in import StandIn
from tests.support.machine import scaled

SYSTEM = "kubeflow"
USERS = ("ada", "ben")
NODE = "/api/v1/nodes/gpu-1"
SIZES = "sizes:\n- label: GPU\n- label: GPU × 3\n  number: 3\n"
CLIENTS = "- {os: '*', version: '*', kind: pods, image: registry.example.com/team/client:0.1.0}\n"
IMAGE = "registry.example.com/team/notebook:0.1.0"
ROLES = Path(__file__).parents[1] / "cluster" / "kubeflow_roles.yaml"
COMPONENTS = ("restrict-account", "form-job", "form-give-back", "restrict-form", "doctor")
RUNS = ("Job", "Pod")


class Platform:
    """The cluster, and shorthands for what the tests do to it."""

    def __init__(self, cluster: Cluster, folder: Path, objects: list[dict[str, Any]]) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.folder = folder
        self.objects = objects
        """Ours, as they are applied; Jobs and pods among them, which are not."""

    def apply(self, data: object) -> None:
        apply(self.cluster, data if isinstance(data, list) else [data])

    @property
    def form_path(self) -> str:
        """Of the form's ConfigMap, whose name has a hash."""
        found = self.client.get(f"/api/v1/namespaces/{SYSTEM}/configmaps")["items"]
        (name,) = (
            each["metadata"]["name"]
            for each in found
            if each["metadata"]["name"].startswith("jupyter-web-app-config")
        )
        return f"/api/v1/namespaces/{SYSTEM}/configmaps/{name}"

    def form(self) -> str:
        return str(self.client.get(self.form_path)["data"]["spawner_ui_config.yaml"])

    def write_form(self, text: str) -> None:
        """As an admin does who knows nothing of us."""
        self.client.merge(self.form_path, {"data": {"spawner_ui_config.yaml": text}})

    def kept(self) -> str | None:
        kept: str | None = (self.client.get(self.form_path)["metadata"].get("annotations") or {}).get(KEPT)
        return kept

    def account(self, name: str) -> Path:
        """A kubeconfig of one of our accounts."""
        return self.cluster.service_account_kubeconfig(SYSTEM, name)

    def restored(self, *paths: str) -> Callable[[], None]:
        """Puts objects back as they are now, whatever becomes of them."""
        now = [(path, self.client.get(path)) for path in paths]

        def back() -> None:
            for path, before in now:
                metadata = before["metadata"]
                for name in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
                    metadata.pop(name, None)
                self.cluster.kubectl("delete", "--raw", path)
                self.client.create(path.rpartition("/")[0], before)

        return back


@contextmanager
def used_kubeflow(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Kubeflow's form and two users, a node with GPUs, and nothing of ours."""
    with ExitStack() as around:
        around.enter_context(kubeflow_namespace(cluster))
        around.enter_context(no_other_profiles(cluster))
        cluster.kubectl("delete", "resourcequotas", "--all", "--all-namespaces")  # of tests that are over
        around.enter_context(namespaces(cluster, dict.fromkeys(USERS, PROFILE)))
        cluster.kubectl("apply", "-f", str(ROLES))
        around.callback(cluster.kubectl, "delete", "-f", str(ROLES))
        write_manifests(folder / "kubeflow", "1.10")
        form = build(folder / "kubeflow" / "applications/jupyter/jupyter-web-app/upstream/overlays/istio")
        for each in form:
            if each["kind"] == "Deployment":
                each["spec"] |= {"replicas": 0, "selector": {"matchLabels": {"app": "jupyter-web-app"}}}
                each["spec"]["template"]["metadata"] = {"labels": {"app": "jupyter-web-app"}}
                each["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/form:v1.10.0"
        apply(cluster, form)
        for user in USERS:
            _editor(cluster, user)
        cluster.client.create("/api/v1/nodes", {"metadata": {"name": NODE.rpartition("/")[2]}})
        around.callback(cluster.client.delete, NODE)
        offer(cluster, {"nvidia.com/gpu": "4", "cpu": "32", "memory": "64Gi", "pods": "100"})
        yield


@contextmanager
def all_is_well(cluster: Cluster, folder: Path) -> Iterator[Platform]:
    """Everything applied and ready; taken away at the end."""
    with ExitStack() as around:
        around.enter_context(used_kubeflow(cluster, folder))
        objects = build_own(
            cluster,
            ["overlays/kubeflow"],
            COMPONENTS,
            configMapGenerator=[
                _map("bitfusion-clients", "clients.yaml", CLIENTS),
                _map("bitfusion-notebook-sizes", "sizes.yaml", SIZES),
            ],
        )
        platform = Platform(cluster, folder, objects)
        around.callback(_remove, platform)
        platform.apply([each for each in objects if each["kind"] not in RUNS])
        ours = [around.enter_context(StandIn(cluster, folder, SYSTEM, name=name)) for name in PROCESSES]
        around.enter_context(
            cluster.node_stub(SYSTEM, schedulable=lambda pod: all(each.ready(pod) for each in ours))
        )
        for name in PROCESSES:
            limit = f"--timeout={scaled(40):.0f}s"
            cluster.kubectl("rollout", "status", "-n", SYSTEM, f"deployment/{name}", limit)
        yield platform


def apply(cluster: Cluster, items: object) -> None:
    """Objects as kubectl applies them."""
    cluster.kubectl(
        "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    )


def offer(cluster: Cluster, resources: dict[str, str]) -> None:
    """What the GPU node has."""
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": resources, "allocatable": resources, "conditions": ready}
    cluster.kubectl("patch", "node", "gpu-1", "--type=merge", "-p", '{"spec": {"taints": null}}')
    cluster.kubectl(
        "patch", "node", "gpu-1", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )


def _editor(cluster: Cluster, user: str) -> None:
    """As Kubeflow's profile controller makes it."""
    cluster.client.create(
        f"/api/v1/namespaces/{user}/serviceaccounts", {"metadata": {"name": "default-editor"}}
    )
    cluster.kubectl(
        *("create", "rolebinding", "default-editor", "-n", user, "--clusterrole=kubeflow-edit"),
        f"--serviceaccount={user}:default-editor",
    )


@contextmanager
def no_other_profiles(cluster: Cluster) -> Iterator[None]:
    """Namespaces of other tests, which no profile controller has looked after, are none meanwhile."""
    path, ((label, value),) = "/api/v1/namespaces", PROFILE.items()
    found = cluster.client.get(path, labelSelector=f"{label}={value}")["items"]
    others = [f"{path}/{each['metadata']['name']}" for each in found]
    for other in others:
        cluster.client.merge(other, {"metadata": {"labels": {label: None}}})
    try:
        yield
    finally:
        for other in filter(cluster.client.exists, others):
            cluster.client.merge(other, {"metadata": {"labels": dict(PROFILE)}})


def _map(name: str, file: str, text: str) -> dict[str, Any]:
    return {"name": name, "namespace": SYSTEM, "behavior": "replace", "literals": [f"{file}={text}"]}


def _remove(platform: Platform) -> None:
    platform.cluster.kubectl("delete", "deployment", "-n", SYSTEM, "jupyter-web-app-deployment")
    remove(platform.cluster, "kubeflow")
    text = yaml.safe_dump_all([each for each in platform.objects if each["kind"] not in RUNS])
    platform.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", input=text)
