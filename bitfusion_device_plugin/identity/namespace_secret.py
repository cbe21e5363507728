"""The Secret of one namespace: read, create, update, delete, each only as it was seen."""

from __future__ import annotations

from typing import Any

from bitfusion_client.pod.pod_contract import IDENTITY_SECRET
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import NotFound
from bitfusion_cluster.api.paths import secrets_path
from bitfusion_device_plugin.identity.records import Identity, SecretRecord, secret_body, secret_record
from bitfusion_device_plugin.identity.secret_owner import SecretOwner

LARGEST = 1 << 20  # what an apiserver takes for a Secret


class NamespaceSecret:
    """`api` is the client, `manager` the value of the label by which a Secret is known as ours.

    `owner` says to what it belongs.

    Methods raise ApiFailure: Forbidden where the namespace has no Role for us, Conflict where the Secret has
    changed since it was read.
    """

    def __init__(self, api: KubernetesApi, manager: str, owner: SecretOwner) -> None:
        self._api = api
        self._manager = manager
        self._owner = owner

    def read(self, namespace: str) -> SecretRecord | None:
        """What is there; None if there is none."""
        try:
            return secret_record(self._api.get(secret_path(namespace), largest=2 * LARGEST), self._manager)
        except NotFound:
            return None

    def create(self, namespace: str, identity: Identity, wanted: str) -> None:
        """Make it. Conflict if there is one by now."""
        body = secret_body(identity, wanted, self._manager, self._owner.references())
        self._api.create(secrets_path(namespace), body)

    def update(self, namespace: str, seen: SecretRecord, identity: Identity, wanted: str) -> None:
        """Replace what is in it."""
        body: dict[str, Any] = secret_body(identity, wanted, self._manager, self._owner.references())
        body["metadata"]["resourceVersion"] = seen.version
        body["data"].update(dict.fromkeys(seen.other_keys))  # null takes a key away
        del body["type"]  # cannot be changed
        self._api.merge(secret_path(namespace), body)

    def delete(self, namespace: str, seen: SecretRecord) -> None:
        """Take it away. One that is gone already is no failure."""
        preconditions = {"uid": seen.uid, "resourceVersion": seen.version}
        try:
            self._api.delete(secret_path(namespace), {"preconditions": preconditions})
        except NotFound:
            pass

    def forget(self, namespace: str) -> None:
        """The namespace has nothing of ours any more: nothing is kept of it here."""

    def names(self) -> tuple[str, ...]:
        """Namespaces that were given one, as far as that is noted: it is not, each Secret says it."""
        return ()


def secret_path(namespace: str) -> str:
    """Of the one Secret."""
    return f"{secrets_path(namespace)}/{IDENTITY_SECRET}"
