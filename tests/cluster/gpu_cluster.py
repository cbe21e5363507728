"""Two real nodes, one with GPUs, and all that notebooks need to compute on these, without a pool.

The first node takes the notebooks, as it has no GPUs; the second one has `GPUS` of a plugin of the tests, and
the taint of GPU nodes. Installed is what an admin installs who keeps notebooks off these: not the engine's
options for GPU nodes, with which notebooks may run there. Users have the rights of a Kubeflow profile, and
homes that any node mounts (ReadWriteMany) unless a test says otherwise.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bitfusion_client.pod.pod_contract import LABEL_GPU_POD_OF
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.cluster.gpu_plugin import GPU, GpusOfNode, holders
from tests.cluster.installation import MANIFESTS, NOTEBOOK_IMAGE, PROFILE, SYSTEM, Done, Notebook, User
from tests.cluster.node import Node
from tests.cluster.pods import SECURITY
from tests.cluster.project_images import project_image
from tests.manifests.installed import RESTRICTED
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until

GPUS = 2
"""Of the second node."""
WHOLE = {"bitfusion.io/gpu-amount": "1"}
"""A notebook's size in the form: one GPU."""
EDITOR, VIEWER = "default-editor", "default-viewer"
"""Accounts of a profile; notebooks run as the first one."""
ROLES = Path(__file__).with_name("kubeflow_roles.yaml")
"""Kubeflow's own, to which ours are aggregated."""
_OVERLAY = MANIFESTS / "overlays" / "kubeflow"
_OF_EVERY_NODE = ("client", "notebook")
_CLIENTS = """\
- os: "*"
  version: "*"
  kind: pods
  image: kubeflow-bitfusion/client:0.1.0
"""
_JOVYAN, _USERS = 1000, 100


@contextmanager
def gpus_installed(nodes: list[Node], done: Done = lambda step: None) -> Iterator[GpuCluster]:
    """Two nodes with all of it, ready for users; taken away at the end. `done` is told each step."""
    cluster = nodes[0].cluster
    with ExitStack() as stack:
        new = False
        for node in nodes:
            for name in (*_OF_EVERY_NODE, *(("notebook-controller",) if node is nodes[0] else ())):
                image = project_image(name, say=lambda line: None)
                new = node.import_image(image, image.name) or new
            if new and node is nodes[0]:
                node.keep_images()
        done("images built and imported into both nodes")
        gpus = stack.enter_context(GpusOfNode(nodes[1], GPUS))
        done(f"{nodes[1].name} offers {GPU}: {GPUS}")
        stack.enter_context(_manifests(nodes[0]))
        done("controller and injector run")
        stack.enter_context(cluster.notebook_controller("1.8"))
        yield GpuCluster(nodes, gpus)


def profile_accounts(cluster: Cluster, namespace: str) -> None:
    """What Kubeflow's profile controller makes: ServiceAccounts and RoleBindings. Its roles are `ROLES`."""
    base = f"namespaces/{namespace}"
    for account, role in ((EDITOR, "kubeflow-edit"), (VIEWER, "kubeflow-view")):
        cluster.client.create(f"/api/v1/{base}/serviceaccounts", {"metadata": {"name": account}})
        binding = {
            "metadata": {"name": account},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        }
        cluster.client.create(f"/apis/rbac.authorization.k8s.io/v1/{base}/rolebindings", binding)


@contextmanager
def _manifests(node: Node) -> Iterator[None]:
    cluster = node.cluster
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM, "labels": RESTRICTED}})
    folder = cluster.folder / f"overlay-{secrets.token_hex(3)}"
    folder.mkdir()
    (folder / "clients.yaml").write_text(_CLIENTS)
    (folder / "kustomization.yaml").write_text(
        f"""\
namespace: {SYSTEM}
resources: [{os.path.relpath(_OVERLAY, folder.resolve())}]
configMapGenerator:
- name: bitfusion-clients
  behavior: replace
  files: [clients.yaml]
  options: {{disableNameSuffixHash: true}}
"""
    )
    try:
        cluster.kubectl("apply", "-f", str(ROLES))
        cluster.kubectl("apply", "-k", str(folder))
        for name in ("bitfusion-notebook-controller", "bitfusion-injector"):
            cluster.kubectl(
                "-n", SYSTEM, "rollout", "status", f"deployment/{name}", "--timeout=170s", limit_s=180
            )
        yield
    finally:
        for name in ("bitfusion-pod-injection", "bitfusion-notebook-admission"):
            cluster.kubectl("delete", "--ignore-not-found", "mutatingwebhookconfiguration", name)
        cluster.kubectl("delete", "--ignore-not-found", "-k", str(folder), limit_s=120)
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(ROLES))
        cluster.kubectl("delete", "--ignore-not-found", "namespace", SYSTEM, limit_s=120)


class GpuCluster:
    """What users of it meet."""

    def __init__(self, nodes: list[Node], gpus: GpusOfNode) -> None:
        self.nodes = nodes
        self.gpus = gpus
        self.cluster = nodes[0].cluster

    @property
    def gpu_node(self) -> Node:
        """The one with GPUs."""
        return self.nodes[1]

    def held(self) -> dict[str, int]:
        """GPUs by pod, as the scheduler counts them."""
        return holders(self.cluster.client, self.gpu_node.name)

    @contextmanager
    def user(self, name: str = "") -> Iterator[GpuUser]:
        """A user's namespace, which enforces *restricted*; gone at the end, and what runs in it."""
        name = name or f"user-{secrets.token_hex(3)}"
        labels = {"name": name, "labels": dict(PROFILE)}
        self.cluster.client.create("/api/v1/namespaces", {"metadata": labels})
        user = GpuUser(self, name)
        try:
            user.prepare()
            yield user
        finally:
            self.cluster.kubectl("delete", "namespace", name, limit_s=150)
            user.forget_homes()


class GpuUser(User):
    """One user: a profile, without an identity for a pool, as there is none."""

    def __init__(self, gpus: GpuCluster, namespace: str) -> None:
        super().__init__(gpus, namespace)  # type: ignore[arg-type]  # of which only the cluster is asked
        self._gpus = gpus
        self._homes: list[str] = []

    def prepare(self) -> None:
        """Its accounts."""
        profile_accounts(self.cluster, self.namespace)

    def notebook(
        self,
        name: str,
        limits: Mapping[str, str] = WHOLE,
        annotations: Mapping[str, str] | None = None,
        image: str = NOTEBOOK_IMAGE,
        account: str = EDITOR,
        home: str = "ReadWriteMany",
        **container: Any,
    ) -> GpuNotebook:
        """Create one as the form does, dry run first, whose home is a claim of its own."""
        size = {"cpu": "2", "memory": "3Gi", **limits}
        made = form_notebook(name, size, annotations, namespace=self.namespace, image=image)
        spec = made["spec"]["template"]["spec"]
        spec["serviceAccountName"] = account
        spec["volumes"].append(
            {"name": "home", "persistentVolumeClaim": {"claimName": self._home(name, home)}}
        )
        own = spec["containers"][0]
        own["resources"]["requests"] = {"cpu": "100m", "memory": "256Mi"}
        own["volumeMounts"].append({"name": "home", "mountPath": "/home/jovyan"})
        own["securityContext"] = SECURITY
        own.update(container)
        path = f"/apis/kubeflow.org/v1beta1/namespaces/{self.namespace}/notebooks"
        self.cluster.client.create(path, made, dryRun="All")
        self.cluster.client.create(path, made)
        return GpuNotebook(self, name)

    def _home(self, name: str, mode: str) -> str:
        """A claim that both nodes can mount, as both are this machine."""
        volume, claim = f"{self.namespace}-{name}", f"{name}-home"
        folder = self.cluster.folder / "homes" / volume
        folder.mkdir(parents=True)
        os.chown(folder, _JOVYAN, _USERS)
        for each in (folder.parent, self.cluster.folder):
            os.chmod(each, each.stat().st_mode | 0o111)
        spec = {"accessModes": [mode], "storageClassName": ""}
        amount = {"storage": "1Gi"}
        self.cluster.client.create(
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": volume},
                "spec": {
                    **spec,
                    "capacity": amount,
                    "hostPath": {"path": str(folder)},
                    "claimRef": {"namespace": self.namespace, "name": claim},
                },
            },
        )
        self._homes.append(volume)
        claims = f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims"
        self.cluster.client.create(
            claims,
            {
                "metadata": {"name": claim},
                "spec": {**spec, "volumeName": volume, "resources": {"requests": amount}},
            },
        )
        # A scheduler that meets it unbound looks again after minutes only, now and then (seen on 1.34).
        wait_until(
            lambda: self.cluster.client.get(f"{claims}/{claim}")["status"].get("phase") == "Bound",
            f"the claim {claim} is bound",
            30,
        )
        return claim

    def forget_homes(self) -> None:
        """When nothing mounts them any more."""
        for volume in self._homes:
            self.cluster.client.delete(f"/api/v1/persistentvolumes/{volume}")
            shutil.rmtree(self.cluster.folder / "homes" / volume)

    def gpu_pods(self) -> list[Object]:
        """Those that its notebooks have made and that are there."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        found: list[Object] = self.cluster.client.get(path, labelSelector=LABEL_GPU_POD_OF)["items"]
        return found

    def one_gpu_pod(self, runs: bool = True) -> Object:
        """The only one, once it is there and runs."""

        def there() -> Object | None:
            (pod,) = self.gpu_pods()
            return pod if not runs or pod["status"].get("phase") == "Running" else None

        return wait_until(there, self.told_of_gpu_pods, 60, errors=(ValueError,))

    def wait_no_gpu_pod(self, limit_s: float = 20) -> None:
        wait_until(lambda: not self.gpu_pods(), self.told_of_gpu_pods, limit_s)

    def gpu_pod_secrets(self) -> list[Object]:
        """What their pods mount."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        found: list[Object] = self.cluster.client.get(path, labelSelector=LABEL_GPU_POD_OF)["items"]
        return found

    def told_of_gpu_pods(self) -> str:
        """What they, and their agents, say: for failures."""
        parts = []
        for pod in self.gpu_pods():
            words = ("-n", self.namespace)
            name = pod["metadata"]["name"]
            for command in (("describe", "pod", name), ("logs", name, "--all-containers", "--tail=30")):
                done = self.cluster.try_kubectl(*words, *command)
                parts.append((done.stdout or done.stderr)[-5000:])
        return "\n\n".join(parts) or "there is no GPU pod"


class GpuNotebook(Notebook):
    """One Notebook of such a user."""
