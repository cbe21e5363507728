"""The report as text tables for people, and as JSON for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bitfusion_client.clock_time import elapsed_text
from bitfusion_client.kubernetes.lost_node import if_it_is_dead, not_ready_text
from bitfusion_client.kubernetes.quota_keys import wrong_quota_text
from bitfusion_client.text_table import box
from bitfusion_device_plugin.units_report.cluster_objects import AskingPod, Quota
from bitfusion_device_plugin.units_report.cluster_report import ClusterReport
from bitfusion_device_plugin.units_report.pool_holders import AtThePool

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
    lost = report.lost
    for node, units in lost[:_MOST_NODES]:
        since = not_ready_text(node.not_ready_since or "")
        lines.append(f"{units} of them on {node.name}, {since}; if it is dead: {if_it_is_dead(node.name)}")
    if len(lost) > _MOST_NODES:
        units = sum(units for _, units in lost[_MOST_NODES:])
        lines.append(f"{units} of them on {len(lost) - _MOST_NODES} more nodes that are not ready")
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
    titles = ["Namespace", "Notebook", "Units", "State", "Node", "holds", "for", "idle", "waiting"]
    rows = []
    for pod, has in report.pods():
        row = [pod.namespace, pod.notebook or f"pod {pod.name}", str(pod.units), pod.state, pod.node]
        if has is not None:
            row += [
                str(has.held) if has.leases else "",
                *_times(has),
                str(has.waiting) if has.waiting else "",
            ]
        rows.append(row)
    return box(titles[: len(rows[0])], rows, frozenset((2, 5, 6, 8)))


def _times(has: AtThePool) -> tuple[str, str]:
    """How long the holder has had its oldest lease, and for how long its kernel is idle."""
    return "" if has.seconds is None else elapsed_text(has.seconds), has.idle_text()


def _reasons(report: ClusterReport) -> str:
    told = [pod for pod in report.objects.pods if pod.why]
    lines = [f"{_called(pod)}: {pod.why}" for pod in told[:_MOST_REASONS]]
    if len(told) > _MOST_REASONS:
        lines.append(f"and {len(told) - _MOST_REASONS} more")
    return "".join(f"{line}\n" for line in lines)


def _quotas(report: ClusterReport) -> str:
    quotas = report.objects.quotas
    rows = [
        (one.namespace, _quota_name(one), str(one.used), str(one.hard))
        for one in quotas
        if one.hard is not None
    ]
    shown = box(("Namespace", "Quota", "used", "of units"), rows, frozenset((2, 3))) if rows else ""
    wrong = [one for one in quotas if one.wrong_keys]
    lines = [
        f"Quota {one.namespace}/{one.name} {wrong_quota_text(one.wrong_keys)}\n"
        for one in wrong[:_MOST_REASONS]
    ]
    if len(wrong) > _MOST_REASONS:
        lines.append(f"and {len(wrong) - _MOST_REASONS} more quotas that limit nothing\n")
    return "\n".join(part for part in (shown, "".join(lines)) if part)


def _quota_name(quota: Quota) -> str:
    return f"{quota.name} (some pods)" if quota.scoped else quota.name


def _unaccounted(report: ClusterReport) -> str:
    more = (
        f"and {report.left_out} more leases or requests, which the pool did not show\n"
        if report.left_out
        else ""
    )
    if not report.unaccounted:
        only = report.objects.only_namespace
        whose = f"of namespace {only}" if only else "of the pool"
        return f"Every lease {whose} is accounted for by a pod.\n{more}"
    rows = [
        (
            *(one.holder.user, one.holder.place, str(one.at_pool.held), *_times(one.at_pool)),
            *(str(one.at_pool.leases), one.why),
        )
        for one in report.unaccounted
    ]
    title = "Holders that no pod accounts for:\n"
    titles = ("Holder", "Place", "holds", "for", "idle", "leases", "why")
    return title + box(titles, rows, frozenset((2, 3, 5))) + more


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
        "lost": [
            {"node": node.name, "units": units, "not_ready_since": node.not_ready_since}
            for node, units in report.lost
        ],
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
