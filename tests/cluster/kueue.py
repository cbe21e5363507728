"""A real Kueue beside a cluster of its own: everything of its `config/default` but the Deployment, run here.

The webhooks and the API of places are reached as in any cluster, by their Services, whose endpoints are this
machine. What a kubelet would do for Kueue's pod is done here: the Secret with its certificate becomes files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from tests.cluster.api_client import Object, Refused
from tests.cluster.binaries import Binaries
from tests.cluster.cluster import AGGREGATION, Cluster, fetch, own_address
from tests.cluster.components import Component
from tests.support.objects import objects_of
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

NAMESPACE = "kueue-system"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2"
PLACES = "/apis/visibility.kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"
_SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
_PORTS = ("kueue-webhook-service", "kueue-visibility-server")


class Kueue:
    """One that runs, and its queues. Made by `kueue_on`."""

    def __init__(self, cluster: Cluster, binaries: Binaries) -> None:
        self.cluster = cluster
        self._binaries = binaries
        self._address = own_address()
        webhooks, places, self._health = free_ports(3)
        self._ports = dict(zip(_PORTS, (webhooks, places), strict=True))
        self._keys = cluster.folder / "kueue-keys"
        configuration = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": self._address, "port": webhooks, "certDir": str(self._keys)},
            "visibilityServer": {"bindAddress": self._address, "bindPort": places},
            "leaderElection": {"leaderElect": False},
            "integrations": {"frameworks": ["pod"]},
        }
        file = cluster.folder / "kueue.yaml"
        file.write_text(yaml.safe_dump(configuration))
        command = [str(binaries.path("kueue")), f"--config={file}", f"--kubeconfig={cluster.kubeconfig}"]
        self.process: Component = cluster.component("kueue", [*command, "--zap-log-level=2"], self._ready)

    def install(self) -> None:
        """Its objects, and the process, until it serves."""
        folder = self._binaries.path("config") / "default"
        made = self.cluster.kubectl("kustomize", str(folder))
        objects = [each for each in objects_of(made) if each["kind"] != "Deployment"]
        for each in objects:
            if each["kind"] == "Service":
                del each["spec"]["selector"]  # no pods: the endpoints are these
        objects += [self._endpoint(name, port) for name, port in self._ports.items()]
        text = "---\n".join(map(yaml.safe_dump, objects))
        self.cluster.kubectl("apply", "--server-side", "--filename=-", input=text)
        self.process.start(limit_s=90)
        wait_until(lambda: self.cluster.client.get(PLACES), "Kueue tells places", 30, errors=(Refused,))

    def flavor(self, name: str) -> None:
        """A ResourceFlavor: nodes like all others."""
        self._create(QUEUES, "ResourceFlavor", name, {})

    def cluster_queue(self, name: str, gpus: int, flavor: str, **spec: object) -> None:
        """One with so many GPUs and nothing else, for the pods of all namespaces."""
        resources = [{"name": GPU, "nominalQuota": str(gpus)}]
        groups = [{"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": resources}]}]
        path = self._create(
            QUEUES, "ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups, **spec}
        )
        wait_until(lambda: self._is_active(path), f"ClusterQueue {name}", 20)

    def local_queue(self, namespace: str, name: str, cluster_queue: str) -> None:
        """One of a namespace."""
        path = self._create(
            f"{QUEUES}/namespaces/{namespace}", "LocalQueue", name, {"clusterQueue": cluster_queue}
        )
        wait_until(lambda: self._is_active(path), f"LocalQueue {name}", 20)

    def workloads(self, namespace: str) -> list[Object]:
        """Those of a namespace's pods."""
        listed: list[Object] = self.cluster.client.get(f"{QUEUES}/namespaces/{namespace}/workloads")["items"]
        return listed

    def _create(self, folder: str, kind: str, name: str, spec: Object) -> str:
        """The path of what is made."""
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        path = f"{folder}/{kind.lower()}s"
        self.cluster.client.create(path, body)
        return f"{path}/{name}"

    def _is_active(self, path: str) -> bool:
        conditions = self.cluster.client.get(path).get("status", {}).get("conditions", [])
        return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)

    def _endpoint(self, service: str, port: int) -> Object:
        # Of a Service's port by name: "https", or none.
        name = "https" if service == "kueue-visibility-server" else ""
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": service,
                "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self._address], "conditions": {"ready": True}}],
            "ports": [{"name": name, "port": port, "protocol": "TCP"}],
        }

    def _ready(self) -> bool:
        """Until it is, its Secret becomes files as soon as it has made it."""
        if not self._keys.exists():
            files = self.cluster.client.get(_SECRET).get("data") or {}
            if "tls.crt" not in files:
                return False
            fresh = self._keys.with_suffix(".new")
            fresh.mkdir(mode=0o700)
            for name, content in files.items():
                (fresh / name).write_bytes(base64.b64decode(content))
            fresh.rename(self._keys)
        return fetch(f"http://127.0.0.1:{self._health}/readyz") == "ok"


@contextmanager
def kueue_on(control_plane: Binaries, binaries: Binaries) -> Iterator[Kueue]:
    """A cluster whose apiserver has others behind it, and Kueue beside it.

    Raises ComponentFailed with the words of what did not start.
    """
    cluster = Cluster.start(control_plane, AGGREGATION)
    kueue = Kueue(cluster, binaries)
    try:
        kueue.install()
        yield kueue
    finally:
        kueue.process.kill()
        cluster.end()
