"""Quotas that look as if they limited GPUs, and limit nothing."""

from __future__ import annotations

from collections.abc import Iterator

from bitfusion_client.kubernetes.quota_keys import KUBEFLOWS_QUOTA, wrong_quota_keys, wrong_quota_text
from bitfusion_client.kubernetes.raw_objects import mapping, metadata_of, text
from bitfusion_cluster.api.paths import RESOURCE_QUOTAS
from bitfusion_cluster.doctor.engine import engine_of
from bitfusion_cluster.doctor.finding import Finding, counted, ok, warn
from bitfusion_cluster.doctor.seen import Seen

MOST = 5


def check_quotas(seen: Seen) -> Iterator[Finding]:
    """Each that has a wrong key; else how many limit GPUs."""
    counts = engine_of(seen).quota_keys
    if not counts:
        return
    limiting = 0
    wrong: list[tuple[str, str]] = []
    for quota in seen.items(RESOURCE_QUOTAS):
        hard = mapping(mapping(quota.get("spec")).get("hard"))
        limiting += any(key in hard for key in counts)
        keys = wrong_quota_keys(hard, counts)
        if keys:
            metadata = metadata_of(quota)
            name, namespace = text(metadata.get("name")), text(metadata.get("namespace"))
            place = (
                f"the Profile {namespace}, spec.resourceQuotaSpec.hard"
                if name == KUBEFLOWS_QUOTA
                else f"kubectl -n {namespace} edit quota {name}"
            )
            said = f"{namespace}/{name} {wrong_quota_text(keys, counts)}"
            wrong.append((said, f"write {' or '.join(counts)}: {place}"))
    yield from (warn("quotas", said, todo) for said, todo in wrong[:MOST])
    if len(wrong) > MOST:
        yield warn(
            "quotas", f"{len(wrong) - MOST} more quotas have wrong keys", "correct these, and check again"
        )
    if not wrong:
        some = (
            f"{counted(limiting, 'quota')} by {' or '.join(counts)}" if limiting else "no quota limits GPUs"
        )
        yield ok("quotas", some)
