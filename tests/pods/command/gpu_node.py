"""A node with GPUs on the tests' API server: GPU pods are namespaces here, others run on paper.

What the API server does is real. Of scheduler and kubelet it has what `bitfusion run` sees: a node or the
words of kube-scheduler, the pod's Secret as files, states, exit codes, termination.
"""

from __future__ import annotations

import base64
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
AGAIN_S = 0.05
"""Seconds after which a Secret that was not there is looked for again."""
COMMAND = Path(bitfusion_pods.__file__).parent / "bin" / "bitfusion"
IN_A_POD = """
set -e
log=$1
shift
mount -t tmpfs none "$XDG_RUNTIME_DIR"
dev=$XDG_RUNTIME_DIR/dev
mkdir "$dev"
mount -t tmpfs none "$dev"
for name in null zero full random urandom tty termination-log; do touch "$dev/$name"; done
for name in null zero full random urandom tty; do mount --bind "/dev/$name" "$dev/$name"; done
mount --bind "$log" "$dev/termination-log"
mkdir "$dev/pts" "$dev/shm"
mount --bind /dev/pts "$dev/pts"
mount --bind /dev/shm "$dev/shm"
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"
mount --move "$dev" /dev
rmdir "$dev"
exec "$@"
"""
"""Sockets and files of the private folder are there only if the stream has brought them; the kubelet gives a
container `/dev` of its own, with a file in it for its last words."""


class GpuNode:
    """Of one namespace. A context manager.

    Args:
        cluster: Whose API server.
        namespace: Whose pods it takes.
        folder: For the pods' Secrets and logs; it is gone in the end.
        gpus: How many it has.
        run_folder: Its pods have another, empty one there.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, folder: Path, run_folder: Path, gpus: int = 2
    ) -> None:
        self.client = ApiClient(cluster.server, cluster.ca, cluster.token, "gpu-node")
        self.namespace = namespace
        self.gpus = gpus
        self.is_cut_off = False
        """Whether nobody reaches the pods that it starts, and nobody is told so."""
        self.grace_s = GRACE_S
        """Seconds from SIGTERM to SIGKILL; an agent that does not run yet hears only the second."""
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        """By the pod's name."""
        self._folder = folder
        self._run_folder = run_folder
        self._holding: dict[str, int] = {}
        self._lock = threading.RLock()
        self._follower = Follower(self.client, f"/api/v1/namespaces/{namespace}/pods", self._changed)
        self._waiters: list[threading.Thread] = []
        self._agains: list[threading.Timer] = []
        self.account: dict[str, str] = {}
        """The variables by which its pods find the API and their token; none where no token is mounted."""
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
        for again in self._agains:  # also those that a running one still adds
            again.cancel()
            again.join(20)
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

    def _last_words(self, name: str) -> Path:
        """`/dev/termination-log` of a pod's container."""
        return self._folder / f"{name}.last-words"

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
            self._status(pod, _running(pod))
            return
        name = pod["metadata"]["name"]
        if not self._mount(pod):
            again = threading.Timer(AGAIN_S, self._look_again, (name,))  # as a kubelet that was too early
            self._agains.append(again)
            again.start()
            return
        (container,) = pod["spec"]["containers"]
        here = f"{self._folder / name}/"
        words = [word.replace(f"{pod_contract.CLIENT_FOLDER}/", here) for word in container["args"]]
        command = [word.replace(f"{pod_contract.CLIENT_FOLDER}/", here) for word in container["command"]]
        address = f"127.0.{random.randint(1, 254)}.{random.randint(1, 254)}"
        port = free_port()
        self.relays[name] = Relay(port, (address, int(words[words.index("--port") + 1])))
        self.relays[name].still = self.is_cut_off
        words[words.index("--port") + 1] = str(port)
        given = {each: os.environ[each] for each in ("PATH", "TMPDIR") if each in os.environ}
        given |= {"HOSTNAME": name, "XDG_RUNTIME_DIR": str(self._run_folder), "CUDA_VISIBLE_DEVICES": "GPU-7"}
        given |= {"BITFUSION_PYTHON": sys.executable, **self.account}
        agent = [
            *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
            *("sh", "-c", IN_A_POD, "sh", str(self._last_words(name)), *command, *words),
        ]
        self._last_words(name).touch()
        with open(self._folder / f"{name}.log", "wb") as log:
            self.agents[name] = subprocess.Popen(
                agent, env=given, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._status(pod, _running(pod, address))
        waiter = threading.Thread(target=self._wait, args=(pod, self.agents[name]), daemon=True)
        self._waiters.append(waiter)
        waiter.start()

    def _mount(self, pod: Object) -> bool:
        """Make files of the Secrets that the pod mounts; whether all are there."""
        folder = self._folder / pod["metadata"]["name"]
        for volume in pod["spec"]["volumes"]:
            mounted = volume.get("secret")
            if mounted is None:
                continue
            namespace = f"/api/v1/namespaces/{self.namespace}"
            try:
                data = self.client.get(f"{namespace}/secrets/{mounted['secretName']}")["data"]
            except Refused as refused:
                if refused.status != 404:
                    raise
                return False
            for item in mounted["items"]:
                file = folder / item["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(base64.b64decode(data[item["key"]]))
                file.chmod(item.get("mode", mounted["defaultMode"]))
        return True

    def _look_again(self, name: str) -> None:
        with contextlib.suppress(*TROUBLE):
            self._changed("MODIFIED", self.client.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}"))

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
                ended["message"] = self._last_words(name).read_text()
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
        killer = threading.Timer(self.grace_s, agent.kill)
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


def _running(pod: Object, address: str = "127.0.0.1") -> Object:
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
        "containerStatuses": containers,
        "podIP": address,
        "podIPs": [{"ip": address}],
    }
