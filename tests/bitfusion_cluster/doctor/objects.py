"""A cluster as the checks see it: objects by their paths, no API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitfusion_cluster.api.errors import ApiFailure, NotFound
from bitfusion_cluster.doctor import places
from bitfusion_cluster.doctor.finding import Finding
from bitfusion_cluster.doctor.seen import Seen

Object = dict[str, Any]
OURS = {"app.kubernetes.io/part-of": "kubeflow-bitfusion"}
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
PODS_YAML = (
    "rules: [{name: whole, serves: {whole: true}, "
    "container: {resources: {limits: {nvidia.com/gpu: '{gpus}'}}}}]"
)


class World:
    """What is at each path, and what a dry run gets; anything that is not there is not found."""

    def __init__(self, paths: Mapping[str, object] | None = None) -> None:
        self.paths: dict[str, Any] = dict(paths or {})
        self.answers: dict[str, Any] = {}
        self.allowed = True
        self.refused: set[tuple[str, str]] = set()
        """Namespaces and verbs of single rights."""
        self.now = 0.0
        self.takes = 0.01
        self.sent: list[tuple[str, bool]] = []

    def put(self, path: str, *items: Object) -> World:
        self.paths[path] = {"items": list(items)}
        return self

    def file(self, name: str, key: str, text: str) -> World:
        self.paths[f"/api/v1/namespaces/kubeflow/configmaps/{name}"] = {"data": {key: text}}
        return self

    def engine(self, kind: str = "pods", rules: str = PODS_YAML) -> World:
        self.file("bitfusion-clients", "clients.yaml", f"- {{os: '*', version: '*', kind: {kind}}}")
        return self.file("bitfusion-gpu-pods", "pods.yaml", rules)

    def users(self, *names: str, selector: object = None) -> World:
        """Profiles, and the injector's webhook that is asked about them."""
        self.put("/api/v1/namespaces", *(named(name, labels=PROFILE) for name in names), named("kube-system"))
        chosen = {"matchLabels": PROFILE} if selector is None else selector
        webhook = {"name": "pods.bitfusion.io", "namespaceSelector": chosen}
        self.paths[places.POD_WEBHOOKS] = {"webhooks": [webhook]}
        return self

    def seen(self) -> Seen:
        def ask(path: str) -> Object:
            found = self.paths.get(path, NotFound(404, "NotFound", path))
            if isinstance(found, ApiFailure):
                raise found
            return dict(found)

        def send(path: str, body: Mapping[str, object], dry_run: bool) -> Object:
            self.sent.append((path, dry_run))
            self.now += self.takes
            if path.endswith("subjectaccessreviews"):
                asked: Any = body["spec"]
                right = asked["resourceAttributes"]
                refused = (right["namespace"], right["verb"]) in self.refused
                return {"status": {"allowed": self.allowed and not refused}}
            answer = self.answers.get(path, {})
            if isinstance(answer, ApiFailure):
                raise answer
            return dict(answer)

        return Seen(ask, send, "kubeflow", lambda: self.now)


def named(name: str, namespace: str = "", labels: Mapping[str, str] | None = None, **more: Any) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})}, **more}


def node(
    name: str,
    resources: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    return named(name, labels=labels, spec=spec, status={"allocatable": dict(resources or {})})


def states(found: Sequence[Finding]) -> list[tuple[str, str]]:
    return [(each.check, each.state) for each in found]
