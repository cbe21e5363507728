"""The manifests' rights and webhooks on the test cluster, with a program of ours as processes.

Everything is as overlay *kubeflow* makes it, ServiceAccount and rights included, but for a namespace of its
own and webhooks that are called by URL: no kubelet runs the Deployment's pods.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.notebook_controller_patch.controller_process import (
    CONTROLLER,
    LOOKUP_S,
    ControllerProcess,
    look_up_within,
)
from tests.support.objects import objects_of

OVERLAYS = Path(__file__).parents[2] / "manifests" / "overlays"
NAME = "bitfusion-notebook-controller"
WEBHOOKS = "bitfusion-notebook-admission"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
WEBHOOKS_PATH = f"{CONFIGURATIONS}/{WEBHOOKS}"
KINDS = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
)


class Installation:
    """One installation in `namespace`; `start` adds a replica, `call` sends the webhooks to one of them.

    `name` is the program's, and `module` has its command.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        overlay: str = "kubeflow",
        name: str = NAME,
        module: str = CONTROLLER,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self._module = module
        self.folder = folder
        self.namespace = cluster.new_namespace(prefix="bitfusion")
        self.secret_path = f"/api/v1/namespaces/{self.namespace}/secrets/{name}-ca"
        self.lease_path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/{name}"
        built = objects_of(cluster.kubectl("kustomize", str(OVERLAYS / overlay)))
        self.objects = [
            self._moved(item)
            for item in built
            if item["kind"] in KINDS and item["metadata"]["labels"]["app.kubernetes.io/name"] == name
        ]
        (webhooks,) = (item for item in self.objects if item["kind"] == "MutatingWebhookConfiguration")
        self._configuration = str(webhooks["metadata"]["name"])
        self.webhooks_path = f"{CONFIGURATIONS}/{self._configuration}"
        self._stack = ExitStack()
        self._replicas = 0

    @property
    def webhooks(self) -> dict[str, Any]:
        """The manifests' webhook configuration, with URLs that nobody answers yet."""
        (found,) = (item for item in self.objects if item["kind"] == "MutatingWebhookConfiguration")
        copied: dict[str, Any] = json.loads(json.dumps(found))
        for webhook in copied["webhooks"]:
            service = webhook["clientConfig"].pop("service")
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:1{service['path']}"
        return copied

    def __enter__(self) -> Installation:
        rest = [item for item in self.objects if item["kind"] != "MutatingWebhookConfiguration"]
        self._apply(*rest, self.webhooks)
        self.kubeconfig = self.cluster.service_account_kubeconfig(self.namespace, self.name)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        names = [f"{item['kind']}/{item['metadata']['name']}" for item in self.objects]
        self.cluster.kubectl("delete", "--ignore-not-found", "-n", self.namespace, *names)
        self.cluster.client.delete(f"/api/v1/namespaces/{self.namespace}")

    def start(self, *options: str, built_in: bool = True) -> ControllerProcess:
        """One more replica, with the built-in authority unless told otherwise."""
        self._replicas += 1
        return self._stack.enter_context(
            ControllerProcess(
                self.folder,
                [
                    f"--kubeconfig={self.kubeconfig}",
                    f"--namespace={self.namespace}",
                    f"--name={self.name}",
                    f"--webhook-configuration={self._configuration}",
                    *(["--certificate-names=127.0.0.1"] if built_in else []),
                    *options,
                ],
                name=f"{self.name}-{self._replicas}",
                prepare=look_up_within(LOOKUP_S),
                module=self._module,
            )
        )

    def started(self, *options: str) -> ControllerProcess:
        """A replica that is ready and is called by the apiserver."""
        replica = self.start(*options)
        self.call(replica)
        replica.wait_ready()
        return replica

    def call(self, replica: ControllerProcess, **settings: Any) -> None:
        """Send the webhooks to this replica. `settings`: other fields of every webhook (failurePolicy, …)."""
        self.call_port(replica.port, **settings)

    def call_port(self, port: int, **settings: Any) -> None:
        """The same for whatever listens at a port of this machine."""
        operations = []
        found = self.cluster.client.get(self.webhooks_path)
        for index, webhook in enumerate(found["webhooks"]):
            path = webhook["clientConfig"]["url"].partition("/admit/")[2]
            where = f"/webhooks/{index}"
            url = f"https://127.0.0.1:{port}/admit/{path}"
            operations.append({"op": "add", "path": f"{where}/clientConfig/url", "value": url})
            for name, value in settings.items():
                operations.append({"op": "add", "path": f"{where}/{name}", "value": value})
        self.cluster.client.patch(self.webhooks_path, operations)

    def bundles(self) -> list[bytes]:
        """What the apiserver trusts, for each webhook."""
        found = self.cluster.client.get(self.webhooks_path)["webhooks"]
        return [base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in found]

    def holder(self) -> str:
        """Who holds the Lease, empty if nobody does."""
        if not self.cluster.client.exists(self.lease_path):
            return ""
        return str(self.cluster.client.get(self.lease_path)["spec"].get("holderIdentity") or "")

    def _moved(self, item: dict[str, Any]) -> dict[str, Any]:
        old = "kubeflow"
        if item["metadata"].get("namespace") == old:
            item["metadata"]["namespace"] = self.namespace
        for subject in item.get("subjects", []):
            if subject.get("namespace") == old:
                subject["namespace"] = self.namespace
        for webhook in item.get("webhooks", []):
            own = webhook["namespaceSelector"].get("matchLabels", {})
            if own.get("kubernetes.io/metadata.name") == old:
                own["kubernetes.io/metadata.name"] = self.namespace
        return item

    def _apply(self, *objects: dict[str, Any]) -> None:
        self.cluster.kubectl(
            "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        )
