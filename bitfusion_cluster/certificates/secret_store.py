"""The Secret of the built-in authority: created once, read by all replicas, replaced by the leader."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bitfusion_client.kubernetes.raw_objects import metadata_of, text
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import Conflict, NotFound
from bitfusion_cluster.api.json_patch import pointer
from bitfusion_cluster.api.paths import secrets_path
from bitfusion_cluster.certificates.authority import new_authority
from bitfusion_cluster.certificates.authority_secret import (
    SECRET_TYPE,
    Authorities,
    read_authorities,
    write_authorities,
)

log = logging.getLogger(__name__)


class SecretStore:
    """Reads and writes one Secret; remembers the version that was read.

    Args:
        api: The API client.
        namespace: The controller's own.
        name: Of the Secret.
        labels: Of the Secret, when it is created.
        authority: The name of a CA that is made here.
    """

    def __init__(
        self, api: KubernetesApi, namespace: str, name: str, labels: Mapping[str, str], authority: str
    ) -> None:
        self._api = api
        self._authority = authority
        self._namespace = namespace
        self._name = name
        self._labels = dict(labels)
        self._collection = secrets_path(namespace)
        self._path = f"{self._collection}/{name}"
        self._version = ""

    def read(self, known: Authorities | None, now: datetime) -> Authorities:
        """What the Secret holds. Where there is none it is created, from `known` or with a new CA.

        Raises ApiFailure, UnusableCertificate.
        """
        try:
            found = self._api.get(self._path)
        except NotFound:
            # Removed while we run: our own is put back, the apiserver trusts it already.
            found = self._create(known or Authorities(new_authority(self._authority, now)))
        self._version = text(metadata_of(found).get("resourceVersion"))
        return read_authorities(found.get("data"))

    def replace(self, authorities: Authorities) -> None:
        """Write another CA. Raises ApiFailure, Conflict if the Secret has changed since it was read."""
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": pointer("metadata", "resourceVersion"), "value": self._version},
            {"op": "add", "path": pointer("data"), "value": write_authorities(authorities)},
        ]
        found = self._api.patch(self._path, operations)
        self._version = text(metadata_of(found).get("resourceVersion"))

    def _create(self, authorities: Authorities) -> dict[str, Any]:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "labels": self._labels,
                "ownerReferences": self._api.owner_references(self._namespace),
            },
            "type": SECRET_TYPE,
            "data": write_authorities(authorities),
        }
        try:
            created = self._api.create(self._collection, secret)
        except Conflict:
            return self._api.get(self._path)
        log.info("certificate authority created", extra={"secret": f"{self._namespace}/{self._name}"})
        return created
