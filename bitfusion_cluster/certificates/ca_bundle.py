"""The ``caBundle`` of a MutatingWebhookConfiguration: patched where it differs, checked for trust. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from bitfusion_client.kubernetes.raw_objects import annotations_of, mapping, metadata_of
from bitfusion_cluster.api.json_patch import pointer

# An object with one of these is cert-manager's to fill: its cainjector writes caBundle whenever it differs.
# https://cert-manager.io/docs/concepts/ca-injector/
INJECTED = (
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
)


def injected_by(configuration: Mapping[str, Any]) -> str:
    """The annotation by which cert-manager owns every ``caBundle`` here; empty if it does not."""
    annotations = annotations_of(configuration)
    return next((name for name in INJECTED if name in annotations), "")


def bundle_patch(configuration: Mapping[str, Any], bundle: bytes) -> list[dict[str, Any]]:
    """The JSON patch that makes every webhook of this configuration trust `bundle`; empty if all do.

    Webhooks are a list: each write is preceded by a ``test`` of the name at its place, so that a
    configuration that was replaced meanwhile is refused as a whole and looked at again; a ``test`` of the
    resourceVersion, so that one which became cert-manager's in between is, too.
    """
    wanted = base64.b64encode(bundle).decode()
    operations: list[dict[str, Any]] = []
    for index, webhook in enumerate(_webhooks(configuration)):
        name, client = webhook.get("name"), webhook.get("clientConfig")
        if not isinstance(client, dict) or client.get("caBundle") == wanted:
            continue
        place = ("webhooks", str(index))
        operations += [
            {"op": "test", "path": pointer(*place, "name"), "value": name},
            {"op": "add", "path": pointer(*place, "clientConfig", "caBundle"), "value": wanted},
        ]
    version = metadata_of(configuration).get("resourceVersion")
    if operations and version:
        operations.insert(0, {"op": "test", "path": pointer("metadata", "resourceVersion"), "value": version})
    return operations


def trusts(configuration: Mapping[str, Any], certificate: bytes) -> bool:
    """Whether every webhook of this configuration trusts this CA, alone or among others."""
    webhooks = _webhooks(configuration)
    return bool(webhooks) and all(certificate.strip() in _trusted(webhook) for webhook in webhooks)


def _webhooks(configuration: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return configuration.get("webhooks") or ()


def _trusted(webhook: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(mapping(webhook.get("clientConfig")).get("caBundle") or "")
    except (binascii.Error, ValueError, TypeError):
        return b""
