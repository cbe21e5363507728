"""This project's controller beside the cluster: its manifests applied, its command as a process of its own.

The process has no more rights than the manifests' ServiceAccount, and may write no more than the component
`restrict-account` lets it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.cluster.api_client import Refused
from tests.cluster.cluster import Cluster, fetch
from tests.cluster.components import Component
from tests.notebook_controller_patch.controller_process import LOOKUP_S, look_up_within
from tests.support.objects import objects_of
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

NAME = "bitfusion-notebook-controller"
WEBHOOKS = "bitfusion-notebook-admission"
WEBHOOK_PATH = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOKS}"
_ROOT = Path(__file__).parent.parent.parent
_MAIN = "; import sys; from notebook_controller_patch.settings import main; sys.exit(main())"
# Pods of the Deployment would never start here: the process stands for one.
_LEFT_OUT = {"Deployment", "PodDisruptionBudget"}
# `NodeStub` stands for the injector, which would refuse what nobody answers.
_LABEL, _INJECTOR = "app.kubernetes.io/name", "bitfusion-injector"


class OurController:
    """One replica as a process: `process.stop()`, `.kill()`, `.start()`, `.freeze()`; its metrics and log."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        kubeconfig: Path,
        ports: list[int],
        lookup_s: float = LOOKUP_S,
    ) -> None:
        self.namespace = namespace
        self.port, self.monitoring_port = ports
        self.process: Component = cluster.component(
            f"{NAME}-{self.port}",
            [
                sys.executable, "-c", look_up_within(lookup_s) + _MAIN,
                f"--kubeconfig={kubeconfig}",
                f"--namespace={namespace}",
                f"--name={NAME}",
                "--bind=127.0.0.1",
                f"--port={self.port}",
                f"--monitoring-port={self.monitoring_port}",
                "--certificate-names=127.0.0.1",
                f"--webhook-configuration={WEBHOOKS}",
                "--drain=0",
            ],
            self._ready,
            {"PYTHONPATH": str(_ROOT)},
        )  # fmt: skip

    def metric(self, name: str) -> float:
        """The sum over all labels of one metric."""
        lines = fetch(f"http://127.0.0.1:{self.monitoring_port}/metrics").splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(map(float, values))

    def metrics(self, prefix: str) -> dict[str, float]:
        """Every sample whose name starts so, with its labels."""
        lines = fetch(f"http://127.0.0.1:{self.monitoring_port}/metrics").splitlines()
        return {
            key: float(value)
            for key, _, value in (line.rpartition(" ") for line in lines if line.startswith(prefix))
        }

    def _ready(self) -> bool:
        return bool(fetch(f"http://127.0.0.1:{self.monitoring_port}/readyz"))


@contextmanager
def our_controller(
    cluster: Cluster,
    overlay: str = "kubeflow",
    start: bool = True,
    api_port: int = 0,
    lookup_s: float = LOOKUP_S,
) -> Iterator[OurController]:
    """The overlay applied, with webhooks that call a process on this machine, and the process running.

    Taken away at the end: the webhooks first, as the manual says.

    Args:
        cluster: Where it is applied.
        overlay: Of the manifests.
        start: Whether the process runs from the beginning.
        api_port: Of a proxy before the apiserver.
        lookup_s: How long it waits for a Notebook that it looks up.
    """
    ports = free_ports(2)
    objects = _objects(cluster, overlay, ports[0])
    namespace = _namespace_of(objects)
    text = "\n---\n".join(json.dumps(each) for each in objects)
    with ExitStack() as stack:
        if not any(each["kind"] == "Namespace" for each in objects):
            stack.enter_context(_namespace(cluster, namespace))
        stack.callback(cluster.kubectl, "delete", "--ignore-not-found", "-f", "-", input=text)
        cluster.kubectl("apply", "-f", "-", input=text)
        kubeconfig = cluster.service_account_kubeconfig(namespace, NAME)
        if api_port:
            config = json.loads(kubeconfig.read_text())
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{api_port}"
            kubeconfig.write_text(json.dumps(config))
        controller = OurController(cluster, namespace, kubeconfig, ports, lookup_s)
        stack.callback(_delete_webhooks, cluster)
        stack.callback(controller.process.stop)
        if start:
            controller.process.start(limit_s=30)
        yield controller


def replica(cluster: Cluster, first: OurController) -> OurController:
    """A second replica, not started yet; the webhooks go on calling the first one."""
    kubeconfig = cluster.service_account_kubeconfig(first.namespace, NAME)
    return OurController(cluster, first.namespace, kubeconfig, free_ports(2))


def with_components(cluster: Cluster, overlay: str, *components: str) -> list[dict[str, Any]]:
    """The objects of an overlay with components of ours."""
    return objects_of(_built(cluster, overlay, components))


def restricted(cluster: Cluster, overlay: str) -> str:
    """The objects of an overlay with the component `restrict-account`, as the guide has it, in YAML."""
    return _built(cluster, overlay, ["restrict-account"])


def _built(cluster: Cluster, overlay: str, components: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(dir=cluster.folder) as folder:
        manifests = os.path.relpath(_ROOT / "manifests", os.path.realpath(folder))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{manifests}/overlays/{overlay}"],
            "components": [f"{manifests}/components/{name}" for name in components],
        }
        (Path(folder) / "kustomization.yaml").write_text(json.dumps(kustomization))
        return cluster.kubectl("kustomize", folder)


def _namespace_of(objects: list[dict[str, Any]]) -> str:
    return str(next(each["metadata"]["namespace"] for each in objects if each["kind"] == "ServiceAccount"))


def _objects(cluster: Cluster, overlay: str, port: int) -> list[dict[str, Any]]:
    built = restricted(cluster, overlay)
    objects = [
        each
        for each in objects_of(built)
        if each["kind"] not in _LEFT_OUT and each["metadata"]["labels"].get(_LABEL) != _INJECTOR
    ]
    for each in objects:
        if each["kind"] == "MutatingWebhookConfiguration":
            for webhook in each["webhooks"]:
                path = webhook["clientConfig"].pop("service")["path"]
                webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
    return objects


@contextmanager
def _namespace(cluster: Cluster, name: str) -> Iterator[None]:
    path = f"/api/v1/namespaces/{name}"
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        yield
    finally:
        cluster.client.delete(path)
        wait_until(lambda: not cluster.client.exists(path), f"namespace {name} gone", 60)


def _delete_webhooks(cluster: Cluster) -> None:
    try:
        cluster.client.delete(WEBHOOK_PATH)
    except Refused as refused:
        if refused.status != 404:
            raise
