"""Notebooks as Kubeflow's form posts them, and what is looked at on them, on their StatefulSets and pods."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster
from tests.cluster.notebook_controller import STOPPED, NotebookController
from tests.support.notebooks import form_notebook
from tests.support.waiting import wait_until

PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
"""The label of a user's namespace in Kubeflow."""


class Room:
    """A user's namespace on the cluster, with shorthands for what users and controllers do in it."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.controller: NotebookController
        """Kubeflow's; set by the fixture that starts one."""
        self.client: ApiClient = cluster.client
        self.namespace = cluster.new_namespace(PROFILE if labels is None else labels, "user")
        # Kubeflow's profile controller makes it; without it no pod of the form's notebooks is let in.
        accounts = f"/api/v1/namespaces/{self.namespace}/serviceaccounts"
        self.client.create(accounts, {"metadata": {"name": "default-editor"}})

    @property
    def notebooks(self) -> str:
        return f"/apis/kubeflow.org/v1beta1/namespaces/{self.namespace}/notebooks"

    @property
    def stateful_sets(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/statefulsets"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def post(self, notebook: Object) -> Object:
        """As the form does: a dry run first, then the real one."""
        self.client.create(self.notebooks, notebook, dryRun="All")
        return self.client.create(self.notebooks, notebook)

    def create(
        self,
        name: str = "mine",
        limits: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Object:
        return self.post(form_notebook(name, limits, annotations, namespace=self.namespace))

    def notebook(self, name: str = "mine") -> Object:
        return self.client.get(f"{self.notebooks}/{name}")

    def stateful_set(self, name: str = "mine") -> Object:
        return self.client.get(f"{self.stateful_sets}/{name}")

    def pod(self, name: str = "mine") -> Object | None:
        try:
            return self.client.get(f"{self.pods}/{name}-0")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def running_pod(self, name: str = "mine") -> Object:
        """The notebook's pod, which must be there."""
        return self.client.get(f"{self.pods}/{name}-0")

    def template_annotations(self, name: str = "mine") -> dict[str, str]:
        metadata = self.stateful_set(name)["spec"]["template"]["metadata"]
        annotations: dict[str, str] = metadata.get("annotations") or {}
        return annotations

    def annotate_with(self, annotations: Mapping[str, str | None], name: str = "mine") -> Object:
        """Set annotations of the Notebook; `None` removes one."""
        return self.client.merge(f"{self.notebooks}/{name}", {"metadata": {"annotations": dict(annotations)}})

    def stop(self, name: str = "mine") -> None:
        """The form's stop button, until the pod is gone."""
        self.annotate_with({STOPPED: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}, name)
        wait_until(lambda: self.pod(name) is None, "the pod of the stopped notebook gone", 30)

    def start(self, name: str = "mine") -> Object:
        """The form's start button, until the notebook runs."""
        self.annotate_with({STOPPED: None}, name)
        return self.wait_running(name)

    def wait_running(self, name: str = "mine", limit_s: float = 30) -> Object:
        """Until the notebook's pod is Running; returns the pod."""

        def running() -> Object | None:
            pod = self.pod(name)
            return pod if pod and pod["status"].get("phase") == "Running" else None

        return wait_until(running, "the notebook's pod runs", limit_s)

    def wait_stateful_set(self, name: str = "mine", limit_s: float = 20) -> Object:
        made: Object = wait_until(
            lambda: self.client.exists(f"{self.stateful_sets}/{name}") and self.stateful_set(name),
            "the notebook's StatefulSet",
            limit_s,
        )
        return made

    def revisions(self, name: str = "mine") -> set[str]:
        """The names of the StatefulSet's ControllerRevisions: one for each pod template that it had."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/controllerrevisions"
        return {
            each["metadata"]["name"]
            for each in self.client.get(path)["items"]
            if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences") or [])
        }


def version(thing: Object) -> str:
    """What the apiserver changes with every write that is no no-op."""
    return str(thing["metadata"]["resourceVersion"])


def generation(thing: Object) -> int:
    """What the apiserver changes with every write that changes the spec."""
    return int(thing["metadata"]["generation"])
