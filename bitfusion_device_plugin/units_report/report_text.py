"""The report as text tables for people, and as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bitfusion_client.text_table import box
from bitfusion_device_plugin.units_report.cluster_objects import AskingPod, Quota
from bitfusion_device_plugin.units_report.cluster_report import ClusterReport

_MOST_REASONS = 20
_MOST_NODES = 5
_OF_POD = ("namespace", "name", "notebook", "units", "state", "counts", "node", "why")


def report_text(report: ClusterReport) -> str:
    """What is shown: headline, pods, why they wait, namespaces' quotas, holders that no pod accounts for."""
    parts = [_headline(report)]
    parts.append(_pods(report) if report.objects.pods else "No pod asks for units of the pool.\n")
    parts.append(_reasons(report))
    parts.append(_quotas(report))
    if report.no_pool:
        parts.append(f"The pool itself was not asked who holds what: {report.no_pool}\n")
    else:
        parts.append(_unaccounted(report))
    return "\n".join(part for part in parts if part)


def _headline(report: ClusterReport) -> str:
    lines, objects, without = [_units(report)], report.objects, report.without_units
    if report.waiting:
        lines.append(
            f"{_count(len(report.waiting), 'pod')} waiting at a gate for {report.waiting_units} units"
        )
    if report.pool_units and without:
        more = f" and {len(without) - _MOST_NODES} more" if len(without) > _MOST_NODES else ""
        nodes = _count(len(objects.nodes), "node")
        lines.append(f"{len(without)} of {nodes} offering no units: {', '.join(without[:_MOST_NODES])}{more}")
    if objects.only_namespace:
        lines.append(
            f"Only the pods of namespace {objects.only_namespace} were read: what others have taken, and "
            "whether the queue runs, is not seen"
        )
    elif report.unprotected:
        lines += ["Not protected against overselling:", *(f"  - {reason}" for reason in report.unprotected)]
    else:
        lines.append(f"Protected against overselling by the queue, {objects.queues[0]}")
    return "\n".join(lines) + "\n"


def _units(report: ClusterReport) -> str:
    if not report.pool_units:
        return f"Units of the pool: none, no node offers any; {report.taken} taken by pods"
    taken = f"Units of the pool: {report.pool_units}, {report.taken} taken by pods"
    if report.objects.only_namespace:
        return f"{taken} of this namespace"
    return f"{taken}, {report.free} free" if report.free >= 0 else f"{taken}, OVERSOLD BY {-report.free}"


def _pods(report: ClusterReport) -> str:
    titles = ["Namespace", "Notebook", "Units", "State", "Node", "holds", "waiting"]
    rows = []
    for pod, has in report.pods():
        row = [pod.namespace, pod.notebook or f"pod {pod.name}", str(pod.units), pod.state, pod.node]
        if has is not None:
            row += [str(has.held) if has.leases else "", str(has.waiting) if has.waiting else ""]
        rows.append(row)
    return box(titles[: len(rows[0])], rows, frozenset((2, 5, 6)))


def _reasons(report: ClusterReport) -> str:
    told = [pod for pod in report.objects.pods if pod.why]
    lines = [f"{_called(pod)}: {pod.why}" for pod in told[:_MOST_REASONS]]
    if len(told) > _MOST_REASONS:
        lines.append(f"and {len(told) - _MOST_REASONS} more")
    return "".join(f"{line}\n" for line in lines)


def _quotas(report: ClusterReport) -> str:
    rows = [(one.namespace, _quota_name(one), str(one.used), str(one.hard)) for one in report.objects.quotas]
    return box(("Namespace", "Quota", "used", "of units"), rows, frozenset((2, 3))) if rows else ""


def _quota_name(quota: Quota) -> str:
    return f"{quota.name} (some pods)" if quota.scoped else quota.name


def _unaccounted(report: ClusterReport) -> str:
    more = (
        f"and {report.left_out} leases or requests more, which the pool did not show\n"
        if report.left_out
        else ""
    )
    if not report.unaccounted:
        only = report.objects.only_namespace
        whose = f"of namespace {only}" if only else "of the pool"
        return f"Every lease {whose} is accounted for by a pod.\n{more}"
    rows = [
        (one.holder.user, one.holder.place, str(one.at_pool.held), str(one.at_pool.leases), one.why)
        for one in report.unaccounted
    ]
    title = "Holders that no pod accounts for:\n"
    return title + box(("Holder", "Place", "holds", "leases", "why"), rows, frozenset((2, 3))) + more


def _called(pod: AskingPod) -> str:
    return f"{pod.namespace}/{pod.notebook or pod.name}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def report_json(report: ClusterReport) -> dict[str, Any]:
    """The object to write. Amounts are in units, percent × amount; `pool` is null where none was asked.

    `protected` is null where one namespace alone was looked at.
    """
    objects = report.objects
    pods = [
        {**{name: getattr(pod, name) for name in _OF_POD}, "pool": has and asdict(has)}
        for pod, has in report.pods()
    ]
    unaccounted = [
        {"holder": one.holder.user, "place": one.holder.place, "pool": asdict(one.at_pool), "why": one.why}
        for one in report.unaccounted
    ]
    return {
        "pool_units": report.pool_units,
        "taken": report.taken,
        "free": report.free,
        "waiting": len(report.waiting),
        "waiting_units": report.waiting_units,
        "nodes": len(objects.nodes),
        "nodes_without_units": report.without_units,
        "only_namespace": objects.only_namespace,
        "protected": None if objects.only_namespace else not report.unprotected,
        "unprotected": report.unprotected,
        "queues": objects.queues,
        "pods": pods,
        "quotas": [asdict(quota) for quota in objects.quotas],
        "unaccounted": unaccounted,
        "left_out": report.left_out,
        "no_pool": report.no_pool,
    }
