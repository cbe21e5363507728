"""The report for programs."""

from __future__ import annotations

from typing import Any

from bitfusion_pool.admin.kubernetes.cluster_report import AtThePool, ClusterReport


def report_json(report: ClusterReport) -> dict[str, Any]:
    """The object to write. Amounts are in units, percent × amount; `pool` is null where none was asked.

    `protected` is null where one namespace alone was looked at.
    """
    return {
        "pool_units": report.pool_units,
        "taken": report.taken,
        "free": report.free,
        "waiting": report.waiting,
        "waiting_units": report.waiting_units,
        "nodes": report.nodes,
        "nodes_without_units": list(report.without_units),
        "only_namespace": report.only_namespace,
        "protected": None if report.only_namespace else not report.unprotected,
        "unprotected": list(report.unprotected),
        "queues": list(report.queues),
        "pods": [
            {
                "namespace": row.pod.namespace,
                "name": row.pod.name,
                "notebook": row.pod.notebook,
                "units": row.pod.units,
                "state": row.pod.state,
                "counts": row.pod.counts,
                "node": row.pod.node,
                "why": row.pod.why,
                "pool": None if row.at_pool is None else _at_pool(row.at_pool),
            }
            for row in report.rows
        ],
        "quotas": [
            {
                "namespace": quota.namespace,
                "name": quota.name,
                "used": quota.used,
                "hard": quota.hard,
                "scoped": quota.scoped,
            }
            for quota in report.quotas
        ],
        "unaccounted": [
            {"holder": one.holder, "place": one.place, "pool": _at_pool(one.at_pool), "why": one.why}
            for one in report.unaccounted
        ],
        "left_out": report.left_out,
        "no_pool": report.no_pool,
    }


def _at_pool(has: AtThePool) -> dict[str, int]:
    return {"held": has.held, "leases": has.leases, "waiting": has.waiting}
