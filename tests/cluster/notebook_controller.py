"""A stub of Kubeflow's notebook controller, with what the real ones of 1.4 to 1.7 and 1.8 to 1.11 do.

From components/notebook-controller/controllers/notebook_controller.go (`generateStatefulSet`, `Reconcile`)
and components/common/reconcilehelper/util.go (`CopyStatefulSetFields`) of kubeflow/kubeflow; the semantics
were measured with the real binaries. What matters to others:

* up to 1.7 no annotation of the Notebook reaches the pod template; from 1.8 on all whose key contains
  neither "kubectl" nor "notebook" do, at the creation of the StatefulSet only;
* every reconcile PUTs the found StatefulSet with its metadata's labels and annotations cleared, replicas
  set and `template.spec` replaced by one without the API's defaults, so that it always differs;
  `template.metadata` is never looked at;
* a Notebook that is being deleted is left alone;
* Open Data Hub's has the API server make a name for the StatefulSet of a long one, and finds it by its owner
  (opendatahub-io/kubeflow, the same file);
* Notebooks are read from an informer's cache, which is a bit behind; StatefulSets are read live here, so that
  a test's figures do not depend on conflicts that the real ones have and try again.
"""

from __future__ import annotations

import copy
import threading
import time
from typing import Any, Literal

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.follow import TROUBLE, Follower
from tests.cluster.informer import Informer
from tests.support.machine import scaled

Kubeflow = Literal["1.7", "1.8"]
"""Which generation is played: 1.4 to 1.7, or 1.8 to 1.11."""

STOPPED = "kubeflow-resource-stopped"
_NEVER_COPIED = ("kubectl", "notebook")
LONGEST_OWN_NAME = 52
"""Beyond it Open Data Hub's StatefulSets are not called as their Notebook."""
_FIRST_RETRY_S, _LAST_RETRY_S = 0.005, 5.0
INFORMER_DELAY_S = 0.02
"""How much later than the apiserver's watch the cache has an event, unless a test says otherwise."""


def stateful_set_of(notebook: Object, kubeflow: Kubeflow) -> Object:
    """`generateStatefulSet`: what the controller wants, without the API's defaults."""
    metadata = notebook["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    template_metadata: Object = {
        "labels": {"statefulset": name, "notebook-name": name, **(metadata.get("labels") or {})}
    }
    if kubeflow == "1.8":
        template_metadata["annotations"] = {
            key: value for key, value in annotations.items() if not any(part in key for part in _NEVER_COPIED)
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [_owner(notebook)]},
        "spec": {
            "replicas": 0 if STOPPED in annotations else 1,
            "selector": {"matchLabels": {"statefulset": name}},
            "template": {
                "metadata": template_metadata,
                "spec": _pod_spec(notebook["spec"]["template"]["spec"], namespace, name),
            },
        },
    }


def copy_stateful_set_fields(wanted: Object, found: Object) -> bool:
    """`CopyStatefulSetFields`: change `found` in place to what is wanted; tells whether anything differed."""
    differs = False
    for field in ("labels", "annotations"):
        if found["metadata"].get(field):
            differs = True
        found["metadata"].pop(field, None)
    if found["spec"].get("replicas") != wanted["spec"]["replicas"]:
        differs = True
        found["spec"]["replicas"] = wanted["spec"]["replicas"]
    if found["spec"]["template"]["spec"] != wanted["spec"]["template"]["spec"]:
        differs = True
        found["spec"]["template"]["spec"] = copy.deepcopy(wanted["spec"]["template"]["spec"])
    return differs


class NotebookController:
    """Reconciles the Notebooks of one namespace, or of all, until it is stopped. A context manager.

    Args:
        client: The apiserver's.
        kubeflow: Which generation.
        namespace: Whose Notebooks; None for all.
        informer_delay_s: How far its cache of Notebooks is behind.
        generates_names: Whether it is Open Data Hub's.
    """

    def __init__(
        self,
        client: ApiClient,
        kubeflow: Kubeflow,
        namespace: str | None = None,
        informer_delay_s: float = INFORMER_DELAY_S,
        generates_names: bool = False,
    ) -> None:
        self.kubeflow = kubeflow
        self.generates_names = generates_names
        self.reconciles = 0
        self.creates = 0
        """StatefulSets created."""
        self.puts = 0
        """PUTs of a StatefulSet that were answered with success, no-ops included."""
        self.refusals: list[str] = []
        """What the apiserver said to the writes that it refused."""
        self._client = client
        scope = f"/namespaces/{namespace}" if namespace else ""
        self._due: dict[tuple[str, str], float] = {}
        self._retries: dict[tuple[str, str], int] = {}
        self._condition = threading.Condition()
        self._ending = False
        self._worker = threading.Thread(target=self._work, name="notebook controller", daemon=True)
        path = f"/apis/kubeflow.org/v1beta1{scope}/notebooks"
        self._notebooks = Informer(client, path, self._add, informer_delay_s)
        stateful_sets = Follower(client, f"/apis/apps/v1{scope}/statefulsets", self._stateful_set_changed)
        self._followers: list[Follower | Informer] = [self._notebooks, stateful_sets]

    @property
    def requests(self) -> dict[str, int]:
        """How often each HTTP method was sent since the start."""
        return dict(self._client.requests)

    def start(self) -> NotebookController:
        self._worker.start()
        for follower in self._followers:
            follower.start()
        return self

    def stop(self) -> None:
        for follower in self._followers:
            follower.stop()
        with self._condition:
            self._ending = True
            self._condition.notify_all()
        self._worker.join(scaled(30))
        assert not self._worker.is_alive()
        self._client.close()

    def __enter__(self) -> NotebookController:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reconcile(self, namespace: str, name: str) -> None:
        """One pass over one Notebook, as after any event of it or of its StatefulSet."""
        notebook = self._notebooks.get((namespace, name))
        if notebook is None:
            return  # its StatefulSet goes by its owner reference
        if notebook["metadata"].get("deletionTimestamp"):
            return
        self.reconciles += 1
        path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
        wanted = stateful_set_of(notebook, self.kubeflow)
        if self.generates_names and len(name) > LONGEST_OWN_NAME:
            wanted["metadata"]["generateName"] = "nb-"
            del wanted["metadata"]["name"]
        found = self._found(path, wanted)
        if found is None:
            found = self._client.create(path, wanted)
            self.creates += 1
        elif copy_stateful_set_fields(wanted, found):
            found = self._client.put(f"{path}/{found['metadata']['name']}", found)
            self.puts += 1
        self._tell_status(notebook, found)

    def _found(self, path: str, wanted: Object) -> Object | None:
        """The StatefulSet that is there: of its name, or, where it has none yet, of its owner."""
        name = wanted["metadata"].get("name")
        if name is None:
            (owner,) = wanted["metadata"]["ownerReferences"]
            for each in self._client.get(path)["items"]:
                if any(one["uid"] == owner["uid"] for one in each["metadata"].get("ownerReferences") or ()):
                    return {"apiVersion": "apps/v1", "kind": "StatefulSet", **each}
            return None
        try:
            return self._client.get(f"{path}/{name}")
        except Refused as refused:
            if refused.status != 404:
                raise
            return None

    def _tell_status(self, notebook: Object, stateful_set: Object) -> None:
        ready = (stateful_set.get("status") or {}).get("readyReplicas", 0)
        status = {"conditions": [], "containerState": {}, "readyReplicas": ready}
        if (notebook.get("status") or {}) != status:
            metadata = notebook["metadata"]
            path = f"/apis/kubeflow.org/v1beta1/namespaces/{metadata['namespace']}/notebooks"
            self._client.put(f"{path}/{metadata['name']}/status", {**notebook, "status": status})

    def _stateful_set_changed(self, _: str, stateful_set: Object) -> None:
        metadata = stateful_set["metadata"]
        for owner in metadata.get("ownerReferences") or []:
            if owner.get("controller") and owner["kind"] == "Notebook":
                self._add((metadata["namespace"], owner["name"]))

    def _add(self, key: tuple[str, str], after_s: float = 0.0) -> None:
        with self._condition:
            due = time.monotonic() + after_s
            self._due[key] = min(due, self._due.get(key, due))
            self._condition.notify_all()

    def _next(self) -> tuple[str, str] | None:
        with self._condition:
            while not self._ending:
                now = time.monotonic()
                key = min(self._due, key=self._due.__getitem__, default=None)
                if key is not None and self._due[key] <= now:
                    del self._due[key]
                    return key
                self._condition.wait(None if key is None else self._due[key] - now)
            return None

    def _work(self) -> None:
        while (key := self._next()) is not None:
            try:
                self.reconcile(*key)
            except TROUBLE as trouble:
                if isinstance(trouble, Refused):
                    self.refusals.append(str(trouble))
                tries = self._retries[key] = self._retries.get(key, 0) + 1
                self._add(key, min(_FIRST_RETRY_S * 2**tries, _LAST_RETRY_S))
            else:
                self._retries.pop(key, None)


def _owner(notebook: Object) -> Object:
    return {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Notebook",
        "name": notebook["metadata"]["name"],
        "uid": notebook["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod_spec(given: Object, namespace: str, name: str) -> Object:
    spec = copy.deepcopy(given)
    container: dict[str, Any] = spec["containers"][0]
    if not container.get("workingDir"):
        container["workingDir"] = "/home/jovyan"
    if container.get("ports") is None:
        container["ports"] = [{"containerPort": 8888, "name": "notebook-port", "protocol": "TCP"}]
    environment = container.setdefault("env", [])
    if not any(each["name"] == "NB_PREFIX" for each in environment):
        environment.append({"name": "NB_PREFIX", "value": f"/notebook/{namespace}/{name}"})
    if spec.get("securityContext") is None:
        spec["securityContext"] = {"fsGroup": 100}
    return spec
