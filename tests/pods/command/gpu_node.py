"""A node with GPUs on the tests' API server: GPU pods are namespaces here, others run on paper.

What the API server does is real. Of scheduler and kubelet it has what `bitfusion run` sees: a node or the
words of kube-scheduler, the init container's certificate, states, exit codes, termination.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import bitfusion_pods
from bitfusion_client.pod import pod_contract
from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.follow import TROUBLE, Follower
from tests.pods.command.relay import Relay
from tests.support.ports import free_port

NODE = "gpu-node"
GPU = "nvidia.com/gpu"
GRACE_S = 3.0
COMMAND = Path(bitfusion_pods.__file__).parent / "bin" / "bitfusion"
IN_A_POD = 'mount -t tmpfs none "$XDG_RUNTIME_DIR" && exec "$@"'
"""Sockets and files of the private folder are there only if the stream has brought them."""


class GpuNode:
    """Of one namespace. A context manager.

    Args:
        cluster: Whose API server.
        namespace: Whose pods it takes.
        folder: For keys and logs; it is gone in the end.
        gpus: How many it has.
        run_folder: Its pods have another, empty one there.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, folder: Path, run_folder: Path, gpus: int = 2
    ) -> None:
        self.client = ApiClient(cluster.server, cluster.ca, cluster.token, "gpu-node")
        self.namespace = namespace
        self.gpus = gpus
        self.without_certificate = False
        """Whether its init containers leave none."""
        self.tells_after_s = 0.0
        """How late it tells that a program's container runs."""
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        """By the pod's name."""
        self._folder = folder
        self._run_folder = run_folder
        self._holding: dict[str, int] = {}
        self._lock = threading.RLock()
        self._follower = Follower(self.client, f"/api/v1/namespaces/{namespace}/pods", self._changed)
        self._waiters: list[threading.Thread] = []
        self._tellers: list[threading.Timer] = []
        self.relays: dict[str, Relay] = {}
        """The network before each agent: a pod has an address of its own, and all the same port."""

    def __enter__(self) -> GpuNode:
        node = {"metadata": {"name": NODE}, "status": {"capacity": {"cpu": "64", "pods": "1000"}}}
        with contextlib.suppress(Refused):  # another test has made it
            self.client.create("/api/v1/nodes", node)  # or Kubernetes collects pods of a node that is none
        self._follower.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.stop()
        for teller in self._tellers:
            teller.cancel()
        for agent in self.agents.values():
            agent.kill()
        for waiter in self._waiters:
            waiter.join(20)
        self.client.close()

    @property
    def held(self) -> int:
        """GPUs that its pods hold."""
        with self._lock:
            return sum(self._holding.values())

    def log(self, name: str) -> str:
        """What the agent of a pod has said."""
        return (self._folder / f"{name}.log").read_text()

    # -- the scheduler -----------------------------------------------------------------------------

    def _changed(self, kind: str, pod: Object) -> None:
        name = pod["metadata"]["name"]
        try:
            with self._lock:
                if kind == "DELETED":
                    self._end(name)
                    self._holding.pop(name, None)
                    self._schedule_others()
                elif pod["metadata"].get("deletionTimestamp"):
                    if not self._end(name):
                        self._remove(pod)
                elif not pod["spec"].get("nodeName"):
                    self._schedule(pod)
                elif pod["status"].get("phase") == "Pending" and name not in self.agents:
                    self._start(pod)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise

    def _schedule_others(self) -> None:
        for pod in self.client.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]:
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                self._schedule(pod)

    def _schedule(self, pod: Object) -> None:
        if pod["spec"].get("schedulingGates"):
            return
        wanted = _gpus(pod)
        name = pod["metadata"]["name"]
        if sum(self._holding.values()) + wanted <= self.gpus:
            self._holding[name] = wanted
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"metadata": {"name": name, "uid": pod["metadata"]["uid"]}, "target": target}
            self.client.create(f"{_path(pod)}/binding", binding)
            return
        message = (
            f"0/1 nodes are available: 1 Insufficient {GPU}. preemption: 0/1 nodes are available: "
            "1 No preemption victims found for incoming pod."
        )
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._status(pod, {"conditions": [condition]})

    # -- the kubelet -------------------------------------------------------------------------------

    def _start(self, pod: Object) -> None:
        if pod_contract.LABEL_GPU_POD_OF not in (pod["metadata"].get("labels") or {}):
            self._status(pod, _running(pod, ""))
            return
        name = pod["metadata"]["name"]
        keys = self._folder / name
        keys.mkdir()
        command = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "10", "-subj", "/CN=test", "-keyout", str(keys / "tls.key")),
            *("-out", str(keys / "tls.crt")),
        ]
        subprocess.run(command, check=True, capture_output=True)
        annotations = pod["metadata"]["annotations"]
        (keys / "client.crt").write_text(annotations[pod_contract.ANNOTATION_CLIENT_CERTIFICATE])
        words = list(pod["spec"]["containers"][0]["args"])
        words[words.index("--keys") + 1] = str(keys)
        address = f"127.0.{random.randint(1, 254)}.{random.randint(1, 254)}"
        port = free_port()
        self.relays[name] = Relay(port, (address, int(words[words.index("--port") + 1])))
        words[words.index("--port") + 1] = str(port)
        given = {each: os.environ[each] for each in ("PATH", "TMPDIR") if each in os.environ}
        given |= {"HOSTNAME": name, "XDG_RUNTIME_DIR": str(self._run_folder), "CUDA_VISIBLE_DEVICES": "GPU-7"}
        agent = [
            *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
            *("sh", "-c", IN_A_POD, "sh", sys.executable, "-I", "-S", str(COMMAND), "agent", *words),
        ]
        with open(self._folder / f"{name}.log", "wb") as log:
            self.agents[name] = subprocess.Popen(
                agent, env=given, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        certificate = "" if self.without_certificate else (keys / "tls.crt").read_text()
        self._tell_running(pod, _running(pod, certificate, address))
        waiter = threading.Thread(target=self._wait, args=(pod, self.agents[name]), daemon=True)
        self._waiters.append(waiter)
        waiter.start()

    def _tell_running(self, pod: Object, status: Object) -> None:
        """Of a pod whose init container is known to be over, as a kubelet tells it before."""
        if not self.tells_after_s:
            self._status(pod, status)
            return
        waiting = {"waiting": {"reason": "PodInitializing"}}
        known = [{**each, "ready": False, "state": waiting} for each in status["containerStatuses"]]
        self._status(pod, {**status, "phase": "Pending", "containerStatuses": known})
        self._tellers.append(threading.Timer(self.tells_after_s, self._status, (pod, status)))
        self._tellers[-1].start()

    def agent_pid(self, name: str) -> int:
        """Of the agent itself, below the program that has made its namespaces."""
        parent = self.agents[name].pid
        return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])

    def _wait(self, pod: Object, agent: subprocess.Popen[bytes]) -> None:
        code = agent.wait()
        name = pod["metadata"]["name"]
        self.relays.pop(name).close()
        with self._lock:
            self._holding.pop(name, None)
            try:
                now = self.client.get(_path(pod))
                if now["metadata"]["uid"] != pod["metadata"]["uid"]:
                    return
                status = 128 - code if code < 0 else code
                ended = {"exitCode": status, "reason": "Error" if status else "Completed"}
                known = now["status"]["containerStatuses"]
                known[0] |= {"ready": False, "state": {"terminated": ended}}
                phase = "Failed" if status else "Succeeded"
                self._status(now, {"phase": phase, "containerStatuses": known})
                if now["metadata"].get("deletionTimestamp"):
                    self._remove(now)
                self._schedule_others()
            except TROUBLE:
                pass

    def _end(self, name: str) -> bool:
        """As a kubelet ends a container; whether there was one that runs."""
        agent = self.agents.get(name)
        if agent is None or agent.poll() is not None:
            return False
        try:
            os.kill(self.agent_pid(name), signal.SIGTERM)
        except (IndexError, ProcessLookupError, FileNotFoundError):
            agent.terminate()
        killer = threading.Timer(GRACE_S, agent.kill)
        killer.daemon = True
        killer.start()
        return True

    def _remove(self, pod: Object) -> None:
        preconditions = {"uid": pod["metadata"]["uid"]}
        self.client.delete(_path(pod), {"gracePeriodSeconds": 0, "preconditions": preconditions})

    def _status(self, pod: Object, status: Object) -> None:
        self.client.merge(f"{_path(pod)}/status", {"status": status})


def _gpus(pod: Object) -> int:
    limits = [
        (each.get("resources") or {}).get("limits", {}).get(GPU, "0") for each in pod["spec"]["containers"]
    ]
    return sum(map(int, limits))


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _running(pod: Object, certificate: str, address: str = "127.0.0.1") -> Object:
    init = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": certificate}},
        }
        for each in pod["spec"].get("initContainers") or []
    ]
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-11-26T00:00:00Z"}},
        }
        for each in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "initContainerStatuses": init,
        "containerStatuses": containers,
        "podIP": address,
        "podIPs": [{"ip": address}],
    }
