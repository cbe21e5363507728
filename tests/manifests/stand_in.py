"""What a kubelet does for our Deployment, without one: the program runs while the Deployment exists.

It runs with the arguments of the Deployment, as its ServiceAccount, and is called through its Service: an
EndpointSlice names this machine's own address, since the apiserver takes no loopback one, and the port that
happened to be free. One process stands for both replicas.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster, own_address
from tests.manifests.built import CONTROLLER
from tests.notebook_controller_patch.controller_process import ControllerProcess

LOOK_S = 0.1
START_S = 20.0
# The process has them from elsewhere: free ports, and files that no kubelet mounts.
REPLACED = ("--port=", "--monitoring-port=", "--images=", "--certificate-folder=")


class StandIn:
    """Follows the Deployment in one namespace until `stop`; a context manager.

    `certificates(folder)` plays cert-manager: it fills the folder that the Secret would be mounted at.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        namespace: str,
        certificates: Callable[[Path], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._client: ApiClient = cluster.client_as(cluster.token, "stand-in")
        self._folder = folder
        self._namespace = namespace
        self._certificates = certificates
        self._slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{CONTROLLER}"
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="stand-in", daemon=True)
        self.trouble: Exception | None = None
        self.processes: list[ControllerProcess] = []

    def __enter__(self) -> StandIn:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()
        for process in self.processes:
            process.__exit__()
        if self.trouble is not None and exception[0] is None:
            raise self.trouble

    def ready(self, pod: Object) -> bool:
        """Whether a pod of the Deployment may run: only when what stands for it is ready. For NodeStub."""
        if pod["metadata"].get("labels", {}).get("app.kubernetes.io/name") != CONTROLLER:
            return True
        return self._ready.wait(START_S)

    def _follow(self) -> None:
        running: ControllerProcess | None = None
        uid = ""
        try:
            while not self._stopping.wait(LOOK_S):
                found = self._found()
                if running is not None and (found is None or found["metadata"]["uid"] != uid):
                    self._end(running)
                    running = None
                if running is None and found is not None:
                    uid = found["metadata"]["uid"]
                    running = self._start(found)
            if running is not None:
                self._end(running)
        except Exception as error:  # told by __exit__
            self.trouble = error

    def _found(self) -> Object | None:
        try:
            return self._client.get(self._deployment)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def _start(self, deployment: Object) -> ControllerProcess:
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        options = [argument for argument in container["args"] if not argument.startswith(REPLACED)]
        images = self._folder / "images.yaml"
        configuration = f"/api/v1/namespaces/{self._namespace}/configmaps/bitfusion-client-images"
        images.write_text(self._client.get(configuration)["data"]["images.yaml"])
        if self._certificates is not None:
            mounted = self._folder / "certificate"
            mounted.mkdir(exist_ok=True)
            self._certificates(mounted)
            options.append(f"--certificate-folder={mounted}")
        kubeconfig = self._cluster.service_account_kubeconfig(self._namespace, CONTROLLER)
        process = ControllerProcess(
            self._folder,
            [*options, f"--images={images}", "--bind=0.0.0.0", f"--kubeconfig={kubeconfig}"],
            {"BITFUSION_CONTROLLER_NAMESPACE": self._namespace},
            name=f"stand-in-{len(self.processes) + 1}",
        )
        self.processes.append(process)
        self._route(process.port)
        process.wait_ready(START_S)
        self._ready.set()
        return process

    def _route(self, port: int) -> None:
        self._client.create(
            self._slices,
            {
                "metadata": {
                    "name": f"{CONTROLLER}-stand-in",
                    "labels": {
                        "kubernetes.io/service-name": CONTROLLER,
                        "endpointslice.kubernetes.io/managed-by": "tests",
                    },
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
                "ports": [{"name": "https-webhook", "port": port, "protocol": "TCP"}],
            },
        )

    def _end(self, process: ControllerProcess) -> None:
        self._ready.clear()
        try:
            self._client.delete(f"{self._slices}/{CONTROLLER}-stand-in")
        except Refused as refused:
            if refused.status != 404:  # gone with its namespace
                raise
        began = time.monotonic()
        process.process.terminate()
        try:
            process.process.wait(25)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {time.monotonic() - began:.0f} s of SIGTERM") from None
