"""What a program makes in its own namespace belongs to its account, with which Kubernetes removes it. Pure.

So nothing stays behind when manifests or a chart are taken away, and nobody needs a right for it. Who the
account is stands in its token. Nothing is decided by that: an owner who does not exist is collected.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from bitfusion_client.kubernetes.raw_objects import mapping


def owner_references(token: str, namespace: str) -> list[dict[str, Any]]:
    """The owner of what this token's account makes in its own namespace; empty for others, or no token.

    Args:
        token: Of a ServiceAccount, with or without "Bearer".
        namespace: Of the object that is made.
    """
    parts = token.rpartition(" ")[2].split(".")
    if len(parts) != 3:
        return []
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return []
    about = mapping(mapping(claims).get("kubernetes.io"))
    account = mapping(about.get("serviceaccount"))
    name, uid = account.get("name"), account.get("uid")
    if about.get("namespace") != namespace or not isinstance(name, str) or not isinstance(uid, str):
        return []
    return [{"apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid}]
