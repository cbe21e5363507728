"""Pods of a test on a real node: made as Pod Security *restricted* wants them, waited for, looked into."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tests.cluster.api_client import Object, Refused
from tests.cluster.node import SMALL, Node
from tests.support.waiting import wait_until

SECURITY: Object = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What Pod Security *restricted* asks of a container; Kubeflow's form does not write it."""


class Pods:
    """The pods of one namespace."""

    def __init__(self, node: Node, namespace: str) -> None:
        self.node = node
        self.namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"

    def run(self, name: str, script: str, **container: Any) -> Object:
        """Make a pod that runs a shell script, and wait until it does; returns it. See `make`."""
        began = time.monotonic()
        self.make(name, script, **container)
        pod = self.wait_running(name)
        self.node.pod_starts_s.append(time.monotonic() - began)
        return pod

    def make(
        self,
        name: str,
        script: str,
        image: str = SMALL,
        labels: Mapping[str, str] | None = None,
        on_node: str | None = None,
        **container: Any,
    ) -> Object:
        """Make a pod of one container that runs a shell script; `container` is added to the container.

        With `on_node` no scheduler is asked.
        """
        what = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", script],
            "securityContext": SECURITY,
            **container,
        }
        spec: Object = {"terminationGracePeriodSeconds": 1, "containers": [what]}
        if on_node is not None:
            spec["nodeName"] = on_node
        return self.create({"metadata": {"name": name, "labels": dict(labels or {})}, "spec": spec})

    def create(self, pod: Object) -> Object:
        return self.node.cluster.client.create(self._path, pod)

    def get(self, name: str) -> Object:
        return self.node.cluster.client.get(f"{self._path}/{name}")

    def wait_running(self, name: str, limit_s: float = 60) -> Object:
        """Until all its containers are ready; returns the pod. A failure tells its state and its events."""
        wait_until(lambda: self.is_ready(name), lambda: self.told(name), limit_s)
        return self.get(name)

    def is_ready(self, name: str) -> bool:
        conditions = self.get(name)["status"].get("conditions", [])
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def exec(self, name: str, *command: str, container: str | None = None) -> str:
        """The stdout of a command in a container; raises KubectlFailed with its stderr."""
        chosen = ["-c", container] if container else []
        return self.node.cluster.kubectl("-n", self.namespace, "exec", name, *chosen, "--", *command)

    def logs(self, name: str, *options: str) -> str:
        return self.node.cluster.kubectl("-n", self.namespace, "logs", name, *options)

    def delete(self, name: str, limit_s: float = 60) -> None:
        """And wait until it is gone, from the node too."""
        try:
            self.node.cluster.client.delete(f"{self._path}/{name}")
        except Refused as refused:
            if refused.status != 404:
                raise
        path = f"{self._path}/{name}"
        wait_until(lambda: not self.node.cluster.client.exists(path), lambda: self.told(name), limit_s)

    def told(self, name: str) -> str:
        """What `kubectl describe` says of it: for failures."""
        described = self.node.cluster.try_kubectl("-n", self.namespace, "describe", "pod", name)
        return described.stdout or described.stderr


def ready_address(pod: Object) -> str:
    """Where this machine and other pods reach it."""
    return str(pod["status"]["podIP"])
