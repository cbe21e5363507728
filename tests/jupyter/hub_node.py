"""A node of the tests' API server on which servers of a JupyterHub are processes, and GPU pods namespaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bitfusion_pods
from tests.cluster.api_client import Object
from tests.cluster.cluster import Cluster
from tests.pods.command.gpu_node import GpuNode, _running

_SITE = Path(bitfusion_pods.__file__).parents[1]
_SERVICE = "component", "singleuser-server"


class HubNode(GpuNode):
    """A server has what a kubelet gives its container: variables, a ConfigMap's files, a token."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, run_folder: Path) -> None:
        super().__init__(cluster, namespace, folder, run_folder)
        self._cluster = cluster
        self.servers: dict[str, subprocess.Popen[bytes]] = {}

    def __exit__(self, *_: object) -> None:
        for name in list(self.servers):
            self._end(name)
        super().__exit__()

    def _start(self, pod: Object) -> None:
        name, labels = pod["metadata"]["name"], pod["metadata"].get("labels") or {}
        if labels.get(_SERVICE[0]) != _SERVICE[1]:
            super()._start(pod)
        elif name not in self.servers:
            with (self._folder / f"{name}.log").open("wb") as log:
                self.servers[name] = subprocess.Popen(
                    [sys.executable, "-m", "jupyterhub.singleuser", "--allow-root"],
                    env={**os.environ, **self._environment(pod)},
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self._status(pod, _running(pod))

    def _environment(self, pod: Object) -> dict[str, str]:
        (container,) = pod["spec"]["containers"]
        found = {each["name"]: each.get("value", "") for each in container["env"]}
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        for volume in pod["spec"]["volumes"]:
            if "configMap" in volume:
                path = f"/api/v1/namespaces/{self.namespace}/configmaps/{volume['configMap']['name']}"
                for file, text in self.client.get(path)["data"].items():
                    (self._folder / file).write_text(text)
                place = f"{mounts[volume['name']]}/"
                found = {k: v.replace(place, f"{self._folder}/") for k, v in found.items()}
        client = found["BITFUSION_CLIENT"].partition("site-packages/")[2]
        host, _, port = self._cluster.server.removeprefix("https://").partition(":")
        return found | {
            "HOSTNAME": pod["metadata"]["name"],
            "BITFUSION_CLIENT": str(_SITE / client),
            "BITFUSION_PODS_ACCOUNT": str(self._account(pod)),
            "BITFUSION_PYTHON": sys.executable,
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "XDG_RUNTIME_DIR": str(self._run_folder),
        }

    def _account(self, pod: Object) -> Path:
        """The token is the pod's, as a mounted one is: policies know by it whose it is."""
        folder = self._folder / f"{pod['metadata']['uid']}-account"
        folder.mkdir()
        own = {each: pod["metadata"][each] for each in ("name", "uid")}
        account = pod["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **own}}
        token = self.client.create(path, {"spec": bound})["status"]["token"]
        for name, text in (("token", token), ("namespace", self.namespace)):
            (folder / name).write_text(text)
        (folder / "ca.crt").write_bytes(self._cluster.ca.read_bytes())
        return folder

    def _end(self, name: str) -> bool:
        server = self.servers.pop(name, None)
        if server is None:
            return super()._end(name)
        server.terminate()
        server.wait(30)
        return False
