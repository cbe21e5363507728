"""A KubernetesApi in memory, for what the built-in authority asks of it: get, create, JSON patch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch

from bitfusion_cluster.api.errors import Conflict, NotFound
from tests.support.apiserver_answers import PATCH_NOT_APPLIED

OWNER = {"apiVersion": "v1", "kind": "ServiceAccount", "uid": "55"}


class StoredObjects:
    """Objects by path. Safe enough for replicas that take turns; `requests` says what was asked, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.before: Callable[[str, str], None] | None = None  # may change or raise: method, path
        self._version = 0

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        self._version += 1
        stored = copy.deepcopy(dict(body))
        stored.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        self.objects[path] = stored

    def owner_references(self, namespace: str) -> list[dict[str, Any]]:
        return [OWNER | {"name": f"of-{namespace}"}]

    def get(self, path: str) -> dict[str, Any]:
        self._asked("GET", path)
        if path not in self.objects:
            raise NotFound(404, "NotFound", f"{path} not found")
        return copy.deepcopy(self.objects[path])

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._asked("POST", path)
        place = f"{path}/{body['metadata']['name']}"
        if place in self.objects:
            raise Conflict(409, "AlreadyExists", f"{place} exists")
        self.put(place, body)
        return copy.deepcopy(self.objects[place])

    def patch(self, path: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        self._asked("PATCH", path)
        if path not in self.objects:
            raise NotFound(404, "NotFound", f"{path} not found")
        try:
            self.put(path, jsonpatch.apply_patch(self.objects[path], operations))
        except jsonpatch.JsonPatchTestFailed:
            raise Conflict(422, "Invalid", PATCH_NOT_APPLIED) from None
        return copy.deepcopy(self.objects[path])

    def _asked(self, method: str, path: str) -> None:
        self.requests.append(f"{method} {path.rsplit('/', 2)[-2]}/{path.rsplit('/', 1)[-1]}")
        if self.before is not None:
            self.before(method, path)
