"""What a kubelet does for a Deployment of ours, without one: the program runs while the Deployment exists.

It runs with the arguments of the Deployment, as its ServiceAccount, and is called through its Service: an
EndpointSlice names this machine's own address, since the apiserver takes no loopback one, and the port that
happened to be free. One process stands for both replicas. A Secret that the Deployment mounts is written into
a folder, and again when it changes; `mounting` set to False is a kubelet that has not looked yet. A ConfigMap
is written once.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bitfusion_cluster.certificates.authority import Pair
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster, own_address
from tests.manifests.built import CONTROLLER, INJECTOR
from tests.notebook_controller_patch import controller_process
from tests.notebook_controller_patch.controller_process import LOOKUP_S, ControllerProcess, look_up_within
from tests.support.waiting import Deadline

LOOK_S = 0.1
State = tuple[str, int]  # a Deployment's uid and generation
START_S = 20.0
# The process has them from elsewhere: free ports, and files that no kubelet mounts.
ONE_REVIEW_A_CONNECTION = """
from bitfusion_cluster.program import http_service

class Closing(http_service.HttpService):
    draining = property(lambda self: True, lambda self, value: None)

http_service.HttpService = Closing
"""
REPLACED = ("--port=", "--monitoring-port=", "--certificate-folder=")
MODULES = {CONTROLLER: controller_process.CONTROLLER, INJECTOR: controller_process.INJECTOR}
NAMESPACE_VARIABLES = {
    CONTROLLER: "BITFUSION_CONTROLLER_NAMESPACE",
    INJECTOR: "BITFUSION_INJECTOR_NAMESPACE",
}


class StandIn:
    """Follows the Deployment `name` in one namespace until the end; a context manager.

    With `handshakes` each review comes over a connection of its own: each one needs the apiserver's trust.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        namespace: str,
        handshakes: bool = False,
        options: Sequence[str] = (),
        name: str = CONTROLLER,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._client: ApiClient = cluster.client_as(cluster.token, "stand-in")
        self._folder = folder
        self._namespace = namespace
        self._prepare = look_up_within(LOOKUP_S) + (ONE_REVIEW_A_CONNECTION if handshakes else "")
        # So long the apiserver may take to learn of the Service's new endpoint.
        self._options = [*options, *(["--drain=3"] if handshakes else [])]
        self._mounts: list[tuple[str, MountedSecret, Object]] = []
        self.mounting = True
        self._slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        self._served: State | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="stand-in", daemon=True)
        self.trouble: Exception | None = None
        self.processes: list[ControllerProcess] = []

    def __enter__(self) -> StandIn:
        if own_address() == "192.0.2.1":
            pytest.skip("this machine has no address but loopback ones, which no Service can lead to")
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()
        for process in self.processes:
            process.__exit__()
        if self.trouble is not None and exception[0] is None:
            raise self.trouble

    @property
    def served(self) -> bool:
        """Whether the Deployment, as it is now, has somebody ready behind its Service."""
        return self._served is not None and self._served == self._wanted()

    def ready(self, pod: Object) -> bool:
        """Whether a pod of the Deployment may run: only when what stands for it is ready. For NodeStub."""
        if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") != self._name:
            return True
        deadline = Deadline(START_S)
        while not deadline.passed and not self._stopping.is_set():
            if self.served:
                return True
            time.sleep(LOOK_S)
        return False

    def _follow(self) -> None:
        running: ControllerProcess | None = None
        state: State | None = None
        try:
            while not self._stopping.wait(LOOK_S):
                wanted = self._wanted()
                self._mount_again()
                if wanted == state:
                    continue
                # As a rollout does it: the new one is there before the old one goes.
                state, old = wanted, running
                running = self._start(wanted) if wanted is not None else None
                if old is not None:
                    self._end(old)
                # A rollout is over when the old one is gone: until then the apiserver may still ask it.
                self._served = wanted if running is not None else None
            if running is not None:
                self._end(running)
        except Exception as error:  # told by __exit__
            self.trouble = error

    def _wanted(self) -> State | None:
        found = self._found()
        return (found["metadata"]["uid"], found["metadata"]["generation"]) if found else None

    def _found(self) -> Object | None:
        return self._object(self._deployment)

    def _object(self, path: str) -> Object | None:
        try:
            return self._client.get(path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def _start(self, state: State) -> ControllerProcess | None:
        """A process for this generation of the Deployment; None if that is none before it is ready."""
        deployment = self._found()
        if deployment is None:
            return None
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        options = [argument for argument in container["args"] if not argument.startswith(REPLACED)]
        volumes = {each["name"]: each for each in deployment["spec"]["template"]["spec"]["volumes"]}
        for mount in container["volumeMounts"]:
            if "configMap" in volumes[mount["name"]]:
                files = self._write(volumes[mount["name"]]["configMap"]["name"])
                options = [option.replace(f"={mount['mountPath']}/", f"={files}/") for option in options]
        if any(argument.startswith("--certificate-folder=") for argument in container["args"]):
            secret = self._mount(volumes["certificate"]["secret"]["secretName"])
            if secret is None:
                return None
            options.append(f"--certificate-folder={secret}")
        kubeconfig = self._cluster.service_account_kubeconfig(self._namespace, self._name)
        process = ControllerProcess(
            self._folder,
            [
                *options,
                *self._options,
                "--bind=0.0.0.0",
                f"--kubeconfig={kubeconfig}",
            ],
            {NAMESPACE_VARIABLES[self._name]: self._namespace},
            name=f"stand-in-{self._name}-{len(self.processes) + 1}",
            prepare=self._prepare,
            module=MODULES[self._name],
        )
        self.processes.append(process)
        while process.ask("/readyz")[0] != 200:
            assert process.process.poll() is None, process.log.read_text()
            self._mount_again()
            if self._stopping.wait(LOOK_S) or self._wanted() != state:
                process.end()
                return None
        self._route(process.port)
        return process

    def _write(self, name: str) -> Path:
        """A folder with what this ConfigMap has now."""
        folder = self._folder / f"{self._name}-{name}"
        folder.mkdir(exist_ok=True)
        found = self._client.get(f"/api/v1/namespaces/{self._namespace}/configmaps/{name}")
        for file, text in found["data"].items():
            (folder / file).write_text(text)
        return folder

    def _mount(self, name: str) -> Path | None:
        """A fresh folder with this Secret, once that is there; None if the test ends first."""
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{name}"
        while (secret := self._object(path)) is None:
            self._mount_again()
            if self._stopping.wait(LOOK_S):
                return None
        data = secret["data"]
        folder = self._folder / f"{self._name}-mounted-{len(self._mounts) + 1}"
        self._mounts.append((path, MountedSecret(folder, _pair(data)), data))
        return folder

    def _mount_again(self) -> None:
        if not self.mounting:
            return
        for index, (path, mount, data) in enumerate(self._mounts):
            secret = self._object(path)
            # As the kubelet does: what was mounted stays when the Secret goes.
            if secret is not None and (fresh := secret["data"]) != data:
                mount.exchange(_pair(fresh))
                self._mounts[index] = (path, mount, fresh)

    def _route(self, port: int) -> None:
        name = f"{self._name}-stand-in"
        labels = {
            "kubernetes.io/service-name": self._name,
            "endpointslice.kubernetes.io/managed-by": "tests",
        }
        body = {
            "metadata": {"name": name, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
            "ports": [{"name": "https-webhook", "port": port, "protocol": "TCP"}],
        }
        try:
            self._client.create(self._slices, body)
        except Refused as refused:
            if refused.reason != "AlreadyExists":
                raise
            self._client.merge(f"{self._slices}/{name}", body)

    def _end(self, process: ControllerProcess) -> None:
        if self._found() is None:
            self._served = None
            try:
                self._client.delete(f"{self._slices}/{self._name}-stand-in")
            except Refused as refused:
                if refused.status != 404:  # gone with its namespace
                    raise
        process.end()


def _pair(data: Object) -> Pair:
    return Pair(base64.b64decode(data["tls.crt"]), base64.b64decode(data["tls.key"]))
