"""The Secret of a namespace, made and replaced by an account that can read none.

Rights to read a Secret in every namespace, if only by one name, are more than this needs: who may also make
Secrets could make one that Kubernetes fills with the token of any account. So the account may create, and
replace by name. It may not delete either: a deletion that waits for a finalizer answers with the object.

What is there is asked by replacing it as a dry run, whose answer shows only what was sent:

- 200: it is ours, for a Secret keeps its type, and ours has a type of its own; with the version that was
  written last, nobody has changed it since;
- 404: there is none; 409: somebody has changed it; 422: it is somebody else's.

What is taken back is emptied and left to an owner that does not exist, so that Kubernetes' garbage collector
removes it.
"""

from __future__ import annotations

from typing import Any

from bitfusion_client.kubernetes.raw_objects import metadata_of, text
from bitfusion_client.pod.pod_contract import IDENTITY_SECRET
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import Conflict, Forbidden, Invalid, NotFound
from bitfusion_cluster.api.paths import secrets_path
from bitfusion_device_plugin.identity.handed_out import HandedOut, HandedOutMap
from bitfusion_device_plugin.identity.namespace_secret import NamespaceSecret, secret_path
from bitfusion_device_plugin.identity.records import (
    LABEL_MANAGED_BY,
    SECRET_TYPE,
    Identity,
    SecretRecord,
    secret_body,
)
from bitfusion_device_plugin.identity.secret_owner import SecretOwner

# No object has this uid, and so the Secret's owner is gone.
_NO_OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "bitfusion-identity-taken-back",
    "uid": "00000000-0000-0000-0000-000000000000",
}


class UnreadSecret:
    """The methods of `NamespaceSecret`, without a right to read. `noted` remembers what was written."""

    def __init__(self, api: KubernetesApi, manager: str, owner: SecretOwner, noted: HandedOutMap) -> None:
        self._api = api
        self._manager = manager
        self._owner = owner
        self._noted = noted

    def read(self, namespace: str) -> SecretRecord | None:
        """What is known of what is there."""
        noted = self._noted.get(namespace)
        try:
            try:
                found = self._try(namespace, noted.version if noted else "")
            except Conflict:
                noted, found = None, self._try(namespace, "")
        except NotFound:
            return None
        except Invalid:
            return SecretRecord("", "", False)
        seen = text(found.get("uid")), text(found.get("resourceVersion"))
        if noted is None:
            return SecretRecord(*seen, True)
        return SecretRecord(*seen, True, True, noted.wanted, noted.token_id, noted.renew_at)

    def create(self, namespace: str, identity: Identity, wanted: str) -> None:
        """See `NamespaceSecret`."""
        body = secret_body(identity, wanted, self._manager, self._owner.references())
        self._note(namespace, self._api.create(secrets_path(namespace), body), identity, wanted)

    def update(self, namespace: str, seen: SecretRecord, identity: Identity, wanted: str) -> None:
        """See `NamespaceSecret`."""
        body = secret_body(identity, wanted, self._manager, self._owner.references())
        body["metadata"]["resourceVersion"] = seen.version
        self._note(namespace, self._api.replace(secret_path(namespace), body), identity, wanted)

    def delete(self, namespace: str, seen: SecretRecord) -> None:
        """Take it away: empty it, and leave the rest to the garbage collector."""
        body = self._empty(seen.version)
        try:
            self._api.replace(
                secret_path(namespace),
                {**body, "metadata": {**body["metadata"], "ownerReferences": [_NO_OWNER]}},
            )
        except Forbidden:  # where an account that may not delete may name no owner, as on OpenShift
            self._api.replace(secret_path(namespace), body)
        except NotFound:
            pass

    def forget(self, namespace: str) -> None:
        """The namespace has nothing of ours any more."""
        self._noted.forget(namespace)

    def names(self) -> tuple[str, ...]:
        """Namespaces that were given one."""
        return self._noted.names()

    def _try(self, namespace: str, version: str) -> Any:
        return metadata_of(self._api.replace(secret_path(namespace), self._empty(version), dry_run=True))

    def _empty(self, version: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": IDENTITY_SECRET, "labels": {LABEL_MANAGED_BY: self._manager}}
        # The same as it has: where an account that may not delete may change no owner, as on OpenShift.
        metadata["ownerReferences"] = self._owner.references()
        if version:
            metadata["resourceVersion"] = version
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": SECRET_TYPE}

    def _note(self, namespace: str, made: dict[str, Any], identity: Identity, wanted: str) -> None:
        version = text(metadata_of(made).get("resourceVersion"))
        self._noted.put(namespace, HandedOut(version, wanted, identity.token_id, identity.renew_at))


class ProfileSecret:
    """Each namespace in its own way: by the Role that an administrator has applied there, or unread."""

    def __init__(self, by_role: NamespaceSecret, unread: UnreadSecret) -> None:
        self._by_role = by_role
        self._unread = unread
        self._has_role: set[str] = set()

    def read(self, namespace: str) -> SecretRecord | None:
        """See `NamespaceSecret`."""
        try:
            found = self._by_role.read(namespace)
        except Forbidden:
            self._has_role.discard(namespace)
            return self._unread.read(namespace)
        self._has_role.add(namespace)
        return found

    def create(self, namespace: str, identity: Identity, wanted: str) -> None:
        """See `NamespaceSecret`."""
        self._way(namespace).create(namespace, identity, wanted)

    def update(self, namespace: str, seen: SecretRecord, identity: Identity, wanted: str) -> None:
        """See `NamespaceSecret`."""
        self._way(namespace).update(namespace, seen, identity, wanted)

    def delete(self, namespace: str, seen: SecretRecord) -> None:
        """See `NamespaceSecret`."""
        self._way(namespace).delete(namespace, seen)

    def forget(self, namespace: str) -> None:
        """See `UnreadSecret`."""
        self._has_role.discard(namespace)
        self._unread.forget(namespace)

    def names(self) -> tuple[str, ...]:
        """See `UnreadSecret`."""
        return self._unread.names()

    def _way(self, namespace: str) -> NamespaceSecret | UnreadSecret:
        return self._by_role if namespace in self._has_role else self._unread
