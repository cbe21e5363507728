"""`bitfusion-pool status --kubernetes`: its options, and which pool is asked."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping

from bitfusion_client.errors import BitfusionError, UsageError
from bitfusion_client.one_line import one_line
from bitfusion_pool.admin.kubernetes.cluster_objects import cluster_objects
from bitfusion_pool.admin.kubernetes.cluster_report import cluster_report
from bitfusion_pool.admin.kubernetes.kubectl import ask_kubectl, read_objects
from bitfusion_pool.admin.kubernetes.report_json import report_json
from bitfusion_pool.admin.kubernetes.report_text import report_text
from bitfusion_pool.client.pools.pool_choice import choose_pool, open_pool
from bitfusion_pool.ledger.snapshot import Snapshot

OWN_POOL = (
    "none is named here but your own, which no pod uses (BITFUSION_POOL or --dir names another, "
    "with the pool in the cluster see docs/seeing.md)"
)


def kubernetes_status(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """The text to print. Raises ClusterUnreadable; a pool that cannot be asked is a line of the text."""
    if not options.kubernetes:  # without a file
        items = ask_kubectl(options.context or "", options.kubeconfig or "")
    elif options.context or options.kubeconfig:
        raise UsageError("--context and --kubeconfig are for kubectl, which is not asked when a file is read")
    else:
        items = read_objects(options.kubernetes)
    snapshot, no_pool = _look_at_pool(environ)
    report = cluster_report(cluster_objects(items), snapshot, no_pool)
    return json.dumps(report_json(report), indent=2) + "\n" if options.json else report_text(report)


def _look_at_pool(environ: Mapping[str, str]) -> tuple[Snapshot | None, str]:
    """What the pool shows, or why nothing is shown of it."""
    try:
        named = environ.get("BITFUSION_POOL_DIR") or environ.get("BITFUSION_POOL_CONFIG")
        if not named and choose_pool(environ).is_own:
            return None, OWN_POOL
        with open_pool(environ) as pool:
            return pool.snapshot(), ""
    except BitfusionError as error:
        return None, one_line(error)
