"""Everything of this project on one real node, as its guide installs it: images, manifests, a pool, a user.

`make cluster-demo` and the tests of the whole way use it. What a registry would give is imported into the
node; the pool is a service beside the cluster, as Bitfusion's servers are; Kubeflow's notebook controller is
played by our stub of it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.cluster import units
from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster, KubectlFailed
from tests.cluster.node import Node
from tests.cluster.notebook_controller import STOPPED
from tests.cluster.pods import SECURITY
from tests.cluster.pool_service import ISSUER, PoolService
from tests.cluster.project_images import project_image
from tests.cluster.served_notebook import JupyterServer
from tests.manifests.installed import RESTRICTED
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until

MANIFESTS = Path(__file__).parents[2] / "manifests"
SYSTEM = "kubeflow"
"""The namespace in which Kubeflow's overlay puts everything but the device plugin."""
DEVICE_PLUGIN = "bitfusion-device-plugin"
"""The device plugin's namespace."""
IMAGES = ("client", "notebook-controller", "notebook")
NOTEBOOK_IMAGE = "kubeflow-bitfusion/notebook:0.1.0"
UNITS = 200
"""As many as the pool's two GPUs are, in hundredths."""
_OVERLAYS = (MANIFESTS / "overlays" / "kubeflow", MANIFESTS / "identity" / "kubeflow")
_DEVICE_PLUGIN = MANIFESTS / "device-plugin" / "kubeflow"
_DEPLOYMENTS = ("bitfusion-notebook-controller", "bitfusion-injector", "bitfusion-identity")

PROFILE = {
    "app.kubernetes.io/part-of": "kubeflow-profile",
    **RESTRICTED,
}
"""A user's namespace, whose pods must be of the strictest kind."""

Done = Callable[[str], None]


@contextmanager
def installed(node: Node, done: Done = lambda step: None) -> Iterator[Installation]:
    """The node with everything on it, ready for users; all taken away at the end.

    `done` is told each step when it is over.
    """
    cluster = node.cluster
    with ExitStack() as stack:
        new = False
        for name in IMAGES:
            image = project_image(name, say=lambda line: None)
            new = node.import_image(image, image.name) or new
        if new:
            node.keep_images()
        done("images built and imported into the node")
        pool = stack.enter_context(PoolService(cluster, node.host_address))
        done("pool of two GPUs serves")
        _wait_for_all_units(cluster)
        stack.enter_context(_manifests(cluster, pool))
        done("controller, injector and identity run")
        stack.enter_context(_device_plugin(node))
        done(f"device plugin offers {UNITS} units")
        stack.enter_context(cluster.notebook_controller("1.8"))
        yield Installation(node, pool)


def _wait_for_all_units(cluster: Cluster) -> None:
    """A pod that another test has left on the node keeps its units, and one of ours may never get a node."""

    def told() -> str:
        return f"no pod of another test has units of the node: {units.holders(cluster.client)}"

    wait_until(lambda: not units.holders(cluster.client), told, 60)


@contextmanager
def _manifests(cluster: Cluster, pool: PoolService) -> Iterator[None]:
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM, "labels": RESTRICTED}})
    try:
        files = pool.issuer_files(cluster.folder / f"issuer-{secrets.token_hex(3)}")
        words = [f"--from-file={each}" for each in sorted(files.iterdir())]
        cluster.kubectl("-n", SYSTEM, "create", "secret", "generic", "bitfusion-issuer", *words)
        for overlay in _OVERLAYS:
            cluster.kubectl("apply", "-k", str(overlay))
        for name in _DEPLOYMENTS:
            cluster.kubectl(
                "-n", SYSTEM, "rollout", "status", f"deployment/{name}", "--timeout=170s", limit_s=180
            )
        yield
    finally:
        for name in ("bitfusion-pod-injection", "bitfusion-notebook-admission"):
            cluster.kubectl("delete", "--ignore-not-found", "mutatingwebhookconfiguration", name)
        for overlay in reversed(_OVERLAYS):
            cluster.kubectl("delete", "--ignore-not-found", "-k", str(overlay), limit_s=120)
        cluster.kubectl("delete", "--ignore-not-found", "namespace", SYSTEM, limit_s=120)


@contextmanager
def _device_plugin(node: Node) -> Iterator[None]:
    cluster = node.cluster
    cluster.kubectl("apply", "-k", str(_DEVICE_PLUGIN))
    try:
        rollout = ("rollout", "status", "daemonset/bitfusion-device-plugin", "--timeout=170s")
        try:
            cluster.kubectl("-n", DEVICE_PLUGIN, *rollout, limit_s=180)
        except KubectlFailed as failed:
            raise AssertionError(f"{failed}\n{_told(cluster, DEVICE_PLUGIN)}") from None
        units.wait_for(cluster.client, node.name, UNITS)
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-k", str(_DEVICE_PLUGIN), limit_s=120)
        units.wait_for(cluster.client, node.name, 0)


def _told(cluster: Cluster, namespace: str) -> str:
    """What the pods of a namespace and its Events say: for failures."""
    parts = [
        cluster.try_kubectl("-n", namespace, "describe", "pods"),
        cluster.try_kubectl("-n", namespace, "get", "events", "--sort-by=.lastTimestamp"),
        cluster.try_kubectl("-n", namespace, "logs", "daemonset/bitfusion-device-plugin", "--tail=40"),
    ]
    return "\n\n".join((part.stdout or part.stderr)[-6000:] for part in parts)


class Installation:
    """What a user of the cluster meets."""

    def __init__(self, node: Node, pool: PoolService) -> None:
        self.node = node
        self.cluster = node.cluster
        self.pool = pool

    @contextmanager
    def user(self, name: str = "", labels: Mapping[str, str] | None = None) -> Iterator[User]:
        """A user's namespace that was opted in, with its identity; gone at the end, and what runs in it."""
        name = name or f"user-{secrets.token_hex(3)}"
        namespace = {"metadata": {"name": name, "labels": dict(PROFILE if labels is None else labels)}}
        self.cluster.client.create("/api/v1/namespaces", namespace)
        user = User(self, name)
        try:
            user.prepare()
            yield user
        finally:
            self.cluster.kubectl("delete", "namespace", name, limit_s=150)

    def opt_in(self, namespace: str) -> None:
        """Let a namespace use the pool, as docs/how-to/access-for-a-namespace.md says."""
        self.cluster.kubectl("-n", namespace, "apply", "-k", str(MANIFESTS / "namespace" / "kubeflow"))
        self.cluster.kubectl("label", "namespace", namespace, "bitfusion.io/identity=true")


class User:
    """One user: the namespace, its notebooks, and what the dashboard does with them."""

    def __init__(self, installation: Installation, namespace: str) -> None:
        self._installation = installation
        self.namespace = namespace
        self.cluster = installation.cluster

    def prepare(self) -> None:
        """What Kubeflow's profile controller does, and the administrator who opts the namespace in."""
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        self.cluster.client.create(account, {"metadata": {"name": "default-editor"}})
        self._installation.opt_in(self.namespace)
        secret = f"/api/v1/namespaces/{self.namespace}/secrets/bitfusion-client"
        wait_until(lambda: self.cluster.client.exists(secret), f"the Secret of {self.namespace}", 60)

    def leases(self) -> list[dict[str, Any]]:
        """What the pool's administrator sees of this user."""
        name = f"{ISSUER}/{self.namespace}"
        return [lease for lease in self._installation.pool.leases() if lease["user"] == name]

    def notebook(
        self,
        name: str,
        limits: Mapping[str, str],
        annotations: Mapping[str, str] | None = None,
        image: str = NOTEBOOK_IMAGE,
        **container: Any,
    ) -> Notebook:
        """Create one as the form does, dry run first, with a place for the user's files."""
        size = {"cpu": "2", "memory": "4Gi", **limits}
        made = form_notebook(name, size, annotations, namespace=self.namespace, image=image)
        spec = made["spec"]["template"]["spec"]
        spec["volumes"].append({"name": "workspace", "emptyDir": {}})
        own = spec["containers"][0]
        own["volumeMounts"].append({"name": "workspace", "mountPath": "/home/jovyan"})
        own["securityContext"] = SECURITY
        own.update(container)
        path = f"/apis/kubeflow.org/v1beta1/namespaces/{self.namespace}/notebooks"
        self.cluster.client.create(path, made, dryRun="All")
        self.cluster.client.create(path, made)
        return Notebook(self, name)


class Notebook:
    """One Notebook of a user, its pod, and the JupyterLab in it."""

    def __init__(self, user: User, name: str) -> None:
        self._user = user
        self._client = user.cluster.client
        self.name = name
        self.pod_name = f"{name}-0"
        base = f"namespaces/{user.namespace}"
        self._notebook = f"/apis/kubeflow.org/v1beta1/{base}/notebooks/{name}"
        self._pod = f"/api/v1/{base}/pods/{self.pod_name}"

    def pod(self) -> Object | None:
        """The pod as the apiserver has it; None while there is none."""
        try:
            return self._client.get(self._pod)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def wait_ready(self, limit_s: float = 120) -> Object:
        """Until all containers of the pod are ready; returns the pod. A failure tells what was seen."""

        def ready() -> Object | None:
            pod = self.pod()
            conditions = pod["status"].get("conditions", []) if pod else []
            good = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
            return pod if good else None

        return wait_until(ready, self.told, limit_s)

    def jupyter(self, limit_s: float = 60) -> JupyterServer:
        """The JupyterLab of the running pod, once it answers."""
        pod = self.wait_ready()
        address = f"http://{pod['status']['podIP']}:8888/notebook/{self._user.namespace}/{self.name}"
        server = JupyterServer(address)
        wait_until(server.answers, self.told, limit_s)
        return server

    def exec(self, *command: str) -> str:
        """What a command prints in the notebook's container."""
        options = ("-n", self._user.namespace, "exec", self.pod_name, "-c", self.name, "--")
        return self._user.cluster.kubectl(*options, *command)

    def stop(self) -> None:
        """The dashboard's stop button, until the pod is gone."""
        self.annotate({STOPPED: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
        wait_until(lambda: self.pod() is None, self.told, 60)

    def start(self) -> Object:
        """The dashboard's start button, until the pod runs."""
        self.annotate({STOPPED: None})
        return self.wait_ready()

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of the Notebook; `None` removes one."""
        self._client.merge(self._notebook, {"metadata": {"annotations": dict(annotations)}})

    def delete(self) -> None:
        """And wait until the pod is gone."""
        with suppress(Refused):
            self._client.delete(self._notebook)
        wait_until(lambda: self.pod() is None, self.told, 60)

    def told(self) -> str:
        """What the pod, its containers and the Events say: for failures."""
        cluster, namespace = self._user.cluster, self._user.namespace
        parts = [
            cluster.try_kubectl("-n", namespace, "describe", "pod", self.pod_name),
            cluster.try_kubectl("-n", namespace, "get", "events", "--sort-by=.lastTimestamp"),
            cluster.try_kubectl(
                "-n", namespace, "logs", self.pod_name, "--all-containers", "--tail=40", "--prefix"
            ),
        ]
        return "\n\n".join((part.stdout or part.stderr)[-6000:] for part in parts)
