"""The device plugin's DaemonSet on a cluster with dead nodes, and with nodes that only look like one.

The DaemonSet controller is Kubernetes' own; nodes, scheduler and kubelets are on paper.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.cluster.api_client import Object, Refused
from tests.cluster.cluster import Cluster
from tests.manifests.built import MANIFESTS, one
from tests.support.machine import scaled
from tests.support.objects import objects_of
from tests.support.waiting import wait_until

NAME = "bitfusion-device-plugin"
NODES = "/api/v1/nodes"
LINUX = {"kubernetes.io/os": "linux"}
# What nodes without a kubelet of their own are labelled with, by who makes them.
LOOK_LIKE_NODES = {
    "fargate": {"eks.amazonaws.com/compute-type": "fargate"},
    "virtual-kubelet": {"type": "virtual-kubelet", "kubernetes.io/role": "agent"},
    "virtualnode2": {"virtualization": "virtualnode2"},
    "eklet": {"node.kubernetes.io/instance-type": "eklet"},
    "liqo": {"liqo.io/type": "virtual-node"},
    "left-out": {"bitfusion.io/device-plugin": "ignore"},
}
REAL = {
    "ec2": {"eks.amazonaws.com/compute-type": "ec2", "node.kubernetes.io/instance-type": "m5.large"},
    "plain": {},
}


class Rollout:
    """The DaemonSet in a namespace of its own, and what happens to its pods on nodes on paper."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.namespace = cluster.new_namespace()
        self.pods_path = f"/api/v1/namespaces/{self.namespace}/pods"
        self.path = f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets"
        self.nodes: set[str] = set()
        self.dead: set[str] = set()
        built = cluster.kubectl("kustomize", str(MANIFESTS / "device-plugin" / "base"))
        self.daemon_set: Object = copy.deepcopy(one(objects_of(built), "DaemonSet", NAME))
        self.daemon_set["metadata"]["namespace"] = self.namespace

    def node(self, name: str, labels: dict[str, str]) -> str:
        name = f"{self.namespace}-{name}"
        self.client.create(NODES, {"metadata": {"name": name, "labels": {**LINUX, **labels}}})
        self.nodes.add(name)
        return name

    def end(self) -> None:
        with suppress(Refused):
            self.client.delete(f"{self.path}/{NAME}")
        for name in self.nodes:
            self.client.delete(f"{NODES}/{name}")
        for pod in self.client.get(self.pods_path)["items"]:
            with suppress(Refused):
                self._remove(pod)

    def apply(self, image: str) -> None:
        spec = self.daemon_set["spec"]["template"]["spec"]
        spec["containers"][0]["image"] = image
        if self.client.exists(f"{self.path}/{NAME}"):
            self.client.merge(f"{self.path}/{NAME}", {"spec": self.daemon_set["spec"]})
        else:
            self.client.create(self.path, self.daemon_set)

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Nodes do their part until it holds."""

        def looked() -> Any:
            self._work()
            return condition()

        wait_until(looked, lambda: f"{what}: {self.status()}, {self.running()}", 20, errors=(Refused,))

    def status(self) -> Object:
        return dict(self.client.get(f"{self.path}/{NAME}").get("status") or {})

    def running(self) -> dict[str, str]:
        """The image of the ready pod by its node."""
        return {
            str(pod["spec"]["nodeName"]): str(pod["spec"]["containers"][0]["image"])
            for pod in self.client.get(self.pods_path)["items"]
            if pod["spec"].get("nodeName") and _ready(pod) and "deletionTimestamp" not in pod["metadata"]
        }

    def pod_on(self, node: str) -> str:
        pods = self.client.get(self.pods_path)["items"]
        return str(next(pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node))

    def looked_at(self) -> bool:
        """Whether the controller has seen the DaemonSet as it is now, and every node."""
        found = self.client.get(f"{self.path}/{NAME}")
        seen = found.get("status", {}).get("observedGeneration")
        return bool(seen == found["metadata"]["generation"] and found["status"]["desiredNumberScheduled"])

    def dies(self, name: str) -> None:
        """The node's kubelet is gone, and Kubernetes has noticed."""
        self.dead.add(name)
        for pod in self.client.get(self.pods_path)["items"]:
            if pod["spec"].get("nodeName") == name:
                self._say(pod, "False")

    def rollout_status(self, seconds: int) -> tuple[int, str]:
        words = ("rollout", "status", f"daemonset/{NAME}", f"--timeout={scaled(seconds):.0f}s")
        done = self.cluster.try_kubectl("-n", self.namespace, *words)
        return done.returncode, done.stdout + done.stderr

    def _work(self) -> None:
        """What scheduler and kubelets do."""
        for pod in self.client.get(self.pods_path)["items"]:
            node = pod["spec"].get("nodeName")
            if node in self.dead:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                self._remove(pod)
            elif not node:
                self._bind(pod)
            elif not _ready(pod):
                self._say(pod, "True")

    def _bind(self, pod: Object) -> None:
        wanted = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (node,) = {term["matchFields"][0]["values"][0] for term in wanted["nodeSelectorTerms"]}
        binding = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}}
        self.client.create(f"{self.pods_path}/{pod['metadata']['name']}/binding", binding)

    def _say(self, pod: Object, ready: str) -> None:
        conditions = [{"type": "Ready", "status": ready}]
        status = {"status": {"phase": "Running", "conditions": conditions}}
        self.client.merge(f"{self.pods_path}/{pod['metadata']['name']}/status", status)

    def _remove(self, pod: Object) -> None:
        self.client.delete(f"{self.pods_path}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


@pytest.fixture
def rollout(cluster: Cluster) -> Iterator[Rollout]:
    found = Rollout(cluster)
    yield found
    found.end()


def test_nodes_that_only_look_like_one_get_no_pod(rollout: Rollout) -> None:
    real = {rollout.node(name, labels) for name, labels in REAL.items()}
    for name, labels in LOOK_LIKE_NODES.items():
        rollout.node(name, labels)
    rollout.apply("plugin:1")
    rollout.wait(lambda: rollout.looked_at() and real <= set(rollout.running()), "pods run")
    assert set(rollout.running()) == real
    assert rollout.status()["desiredNumberScheduled"] == len(real)
    assert rollout.rollout_status(10)[0] == 0


@pytest.mark.parametrize(("alive", "dead"), [(1, 1), pytest.param(3, 2, marks=pytest.mark.long)])
def test_a_dead_node_stops_no_other(rollout: Rollout, alive: int, dead: int) -> None:
    living = {rollout.node(f"n{number}", {}) for number in range(alive)}
    gone = {rollout.node(f"dead{number}", {}) for number in range(dead)}
    rollout.apply("plugin:1")
    rollout.wait(lambda: set(rollout.running()) == living | gone, "the first version runs everywhere")
    for name in gone:
        rollout.dies(name)
    rollout.apply("plugin:2")
    rollout.wait(
        lambda: rollout.running() == dict.fromkeys(living, "plugin:2"),
        "the living nodes have the new version",
    )
    # What the guide says of it: kubectl waits in vain, and says for how many.
    status, words = rollout.rollout_status(2)
    assert status == 1
    assert "Waiting for daemon set" in words
    # A node that does not come back is left out, or deleted: then the roll-out is over.
    left_out, *deleted = sorted(gone)
    for name in deleted:  # which the controller sees with the next change, or when its pods are collected
        rollout.client.delete(f"{NODES}/{name}")
        rollout.nodes.discard(name)
    rollout.cluster.kubectl("label", "node", left_out, "bitfusion.io/device-plugin=ignore")
    rollout.cluster.kubectl("-n", rollout.namespace, "delete", "pod", "--force", rollout.pod_on(left_out))
    rollout.wait(lambda: rollout.status()["desiredNumberScheduled"] == alive, "only the living count")
    assert rollout.rollout_status(10)[0] == 0
    rollout.apply("plugin:3")
    rollout.wait(lambda: rollout.running() == dict.fromkeys(living, "plugin:3"), "the next one goes as well")
