"""What the Secrets of all namespaces belong to: the ClusterRole with which Kubernetes removes them.

So nothing stays behind in users' namespaces when manifests or a chart are taken away. Only an object without
a namespace can own others in many.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from bitfusion_client.kubernetes.raw_objects import metadata_of, text
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import Forbidden, NotFound

KNOWN_S = 60.0
"""A role that was deleted and made again is another owner, and what belongs to the first one is collected."""
_GROUP = "rbac.authorization.k8s.io/v1"


class SecretOwner:
    """`api` is the client, `name` that of the ClusterRole, `clock` in seconds."""

    def __init__(self, api: KubernetesApi, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._name = name
        self._clock = clock
        self._asked_at = 0.0
        self._known: list[dict[str, Any]] | None = None

    def references(self) -> list[dict[str, Any]]:
        """As `metadata.ownerReferences` has them; empty where there is no such role. Raises ApiFailure."""
        if self._known is None or self._clock() - self._asked_at >= KNOWN_S:
            self._asked_at = self._clock()
            uid = ""
            with contextlib.suppress(Forbidden, NotFound):
                role = self._api.get(f"/apis/{_GROUP}/clusterroles/{self._name}")
                uid = text(metadata_of(role).get("uid"))
            owner = {"apiVersion": _GROUP, "kind": "ClusterRole", "name": self._name, "uid": uid}
            self._known = [owner] if uid else []
        return self._known
