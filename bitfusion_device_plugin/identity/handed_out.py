"""What was handed out to namespaces whose Secrets cannot be read: a ConfigMap in the controller's own one.

A value says which version of the Secret was written, of what, and with which token's id: nothing secret.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import asdict, dataclass

from bitfusion_client.kubernetes.raw_objects import mapping, text
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import NotFound
from bitfusion_cluster.api.paths import config_maps_path
from bitfusion_device_plugin.identity.records import LABEL_MANAGED_BY, LABEL_PART_OF, PART_OF, is_token_id

LARGEST = 1 << 20  # what an API server takes for a ConfigMap: some 5,000 namespaces


@dataclass(frozen=True, slots=True)
class HandedOut:
    """Of one namespace; the fields are those of `SecretRecord`."""

    version: str
    wanted: str
    token_id: str = ""
    renew_at: float | None = None


class HandedOutMap:
    """Read once, when a term begins: nobody else writes it while this replica leads. For several threads.

    `api` is the client; `namespace` and `name` those of the ConfigMap. Methods raise ApiFailure.
    """

    def __init__(self, api: KubernetesApi, namespace: str, name: str) -> None:
        self._api = api
        self._name = name
        self._namespace = namespace
        self._collection = config_maps_path(namespace)
        self._path = f"{self._collection}/{name}"
        self._known: dict[str, HandedOut] | None = None
        self._lock = threading.Lock()

    def get(self, namespace: str) -> HandedOut | None:
        """What that namespace has; None if nobody knows."""
        with self._lock:
            return self._all().get(namespace)

    def names(self) -> tuple[str, ...]:
        """The namespaces that have something."""
        with self._lock:
            return tuple(self._all())

    def put(self, namespace: str, what: HandedOut) -> None:
        """Note what was written."""
        data = {namespace: json.dumps(asdict(what))}
        with self._lock:
            known = self._all()
            try:
                self._api.merge(self._path, {"data": data})
            except NotFound:
                labels = {LABEL_MANAGED_BY: self._name, LABEL_PART_OF: PART_OF}
                metadata = {
                    "name": self._name,
                    "labels": labels,
                    "ownerReferences": self._api.owner_references(self._namespace),
                }
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
                self._api.create(self._collection, body)
            known[namespace] = what

    def forget(self, namespace: str) -> None:
        """It has nothing any more."""
        with self._lock:
            known = self._all()
            if namespace in known:
                with contextlib.suppress(NotFound):
                    self._api.merge(self._path, {"data": {namespace: None}})
                del known[namespace]

    def _all(self) -> dict[str, HandedOut]:
        if self._known is None:
            try:
                data = mapping(self._api.get(self._path, largest=2 * LARGEST).get("data"))
            except NotFound:
                data = {}
            found = {name: handed_out(value) for name, value in data.items()}
            self._known = {name: one for name, one in found.items() if one is not None}
        return self._known


def handed_out(value: object) -> HandedOut | None:
    """A value of the ConfigMap, None if it is none of ours. Never raises."""
    try:
        found = mapping(json.loads(text(value)))
    except (ValueError, RecursionError):
        return None
    token_id, renew_at = text(found.get("token_id")), found.get("renew_at")
    if not text(found.get("version")) or (token_id and not is_token_id(token_id)):
        return None
    if not isinstance(renew_at, (int, float)) or isinstance(renew_at, bool):
        renew_at = None
    return HandedOut(text(found["version"]), text(found.get("wanted")), token_id, renew_at)
