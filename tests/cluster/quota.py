"""When a ResourceQuota counts.

Kubernetes counts it first, then its API server learns of that: it decides by a copy, which is late. What is
created before is let in, and counted minutes later.
"""

from __future__ import annotations

from typing import Any

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.support.waiting import wait_until


def until_quota_refuses(
    client: ApiClient, namespace: str, too_much: Object, plural: str = "pods", *, quota: str
) -> str:
    """Until this would be refused because of that quota, and its words; nothing is created."""
    path = f"/api/v1/namespaces/{namespace}/{plural}"
    last: Any = None

    def refused() -> str | None:
        nonlocal last
        try:
            last = client.create(path, too_much, dryRun="All")["metadata"]
        except Refused as refused:
            last = refused.message
            return refused.message if f"exceeded quota: {quota}," in refused.message else None
        return None

    return wait_until(refused, lambda: f"quota {quota} refuses: {last}", 30)
