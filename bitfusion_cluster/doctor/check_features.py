"""Which of the optional parts are on."""

from __future__ import annotations

from collections.abc import Iterator

from bitfusion_client.kubernetes.raw_objects import metadata_of, text
from bitfusion_cluster.doctor.engine import engine_of
from bitfusion_cluster.doctor.finding import Finding, ok
from bitfusion_cluster.doctor.places import (
    IDENTITY,
    NETWORK_POLICIES,
    POLICIES,
    daemon_sets,
    deployments,
)
from bitfusion_cluster.doctor.seen import Seen, Unseen
from bitfusion_cluster.doctor.served import own_daemon_sets

ALWAYS = (
    ("policy of sizes", POLICIES, "bitfusion-sizes"),
    ("accounts restricted", POLICIES, "bitfusion-injector-account"),
)
OF_PODS = (
    ("GPUs only by GPU pods", POLICIES, "bitfusion-gpu-pods-only"),
    ("NetworkPolicy of GPU pods", NETWORK_POLICIES, "bitfusion-gpu-pods"),
)
OF_A_POOL = (
    ("identity", "", IDENTITY),
    ("queue", "", "bitfusion-queue"),
    ("device plugin", daemon_sets(), "bitfusion-device-plugin"),
)


def check_features(seen: Seen) -> Iterator[Finding]:
    """One row: what is on, what is off, of what this engine can have."""
    engine = engine_of(seen)
    on: list[str] = []
    off: list[str] = []
    parts = [*ALWAYS, *(OF_PODS if engine.has_pods else ()), *(OF_A_POOL if engine.has_pool else ())]
    for name, path, what in parts:
        try:
            sets = path == daemon_sets()
            there = own_daemon_sets(seen) if sets else seen.items(path or deployments(seen.namespace))
            names = {text(metadata_of(each).get("name")) for each in there}
        except Unseen:
            continue
        (on if what in names else off).append(name)
    if on or off:
        yield ok("features", f"on: {', '.join(on) or 'none'}; off: {', '.join(off) or 'none'}")
