"""The report as text tables."""

from __future__ import annotations

from bitfusion_client.text_table import box
from bitfusion_pool.admin.kubernetes.cluster_objects import AskingPod, Quota
from bitfusion_pool.admin.kubernetes.cluster_report import AtThePool, ClusterReport, PodRow
from bitfusion_pool.admin.kubernetes.protection import NOT_PROTECTED

_MOST_REASONS = 20
_MOST_NODES = 5


def report_text(report: ClusterReport) -> str:
    """What is shown: headline, pods, why they wait, namespaces' quotas, holders that no pod accounts for."""
    parts = [_headline(report)]
    parts.append(_pods(report) if report.rows else "No pod asks for units of the pool.\n")
    parts.append(_reasons(report))
    parts.append(_quotas(report))
    if report.no_pool:
        parts.append(f"The pool itself was not asked who holds what: {report.no_pool}\n")
    else:
        parts.append(_unaccounted(report))
    return "\n".join(part for part in parts if part)


def _headline(report: ClusterReport) -> str:
    lines = [_units(report)]
    if report.waiting:
        lines.append(f"{_count(report.waiting, 'pod')} waiting at a gate for {report.waiting_units} units")
    if report.pool_units and report.without_units:
        shown = ", ".join(report.without_units[:_MOST_NODES])
        more = len(report.without_units) - _MOST_NODES
        lines.append(
            f"{len(report.without_units)} of {_count(report.nodes, 'node')} offering no units: {shown}"
            + (f" and {more} more" if more > 0 else "")
        )
    if report.only_namespace:
        lines.append(
            f"Only the pods of namespace {report.only_namespace} were read: what others have taken, and "
            "whether the queue runs, is not seen"
        )
    elif report.unprotected:
        lines.append(f"{NOT_PROTECTED[0].upper()}{NOT_PROTECTED[1:]}:")
        lines += [f"  - {reason}" for reason in report.unprotected]
    else:
        lines.append(f"Protected against overselling by the queue, {report.queues[0]}")
    return "\n".join(lines) + "\n"


def _units(report: ClusterReport) -> str:
    if not report.pool_units:
        return f"Units of the pool: none, no node offers any; {report.taken} taken by pods"
    taken = f"Units of the pool: {report.pool_units}, {report.taken} taken by pods"
    if report.only_namespace:
        return f"{taken} of this namespace"
    return f"{taken}, {report.free} free" if report.free >= 0 else f"{taken}, OVERSOLD BY {-report.free}"


def _pods(report: ClusterReport) -> str:
    titles: tuple[str, ...] = ("Namespace", "Notebook", "Units", "State", "Node")
    right = {2}
    if not report.no_pool:
        titles += ("holds", "waiting")
        right |= {5, 6}
    rows = [_row(row) for row in report.rows]
    return box(titles, rows, frozenset(right))


def _row(row: PodRow) -> tuple[str, ...]:
    pod = row.pod
    cells = (pod.namespace, pod.notebook or f"pod {pod.name}", str(pod.units), pod.state, pod.node)
    return cells if row.at_pool is None else (*cells, *_at_pool(row.at_pool))


def _at_pool(has: AtThePool) -> tuple[str, str]:
    return str(has.held) if has.leases else "", str(has.waiting) if has.waiting else ""


def _reasons(report: ClusterReport) -> str:
    told = [row.pod for row in report.rows if row.pod.why]
    lines = [f"{_called(pod)}: {pod.why}" for pod in told[:_MOST_REASONS]]
    if len(told) > _MOST_REASONS:
        lines.append(f"and {len(told) - _MOST_REASONS} more")
    return "".join(f"{line}\n" for line in lines)


def _quotas(report: ClusterReport) -> str:
    rows = [(one.namespace, _quota_name(one), str(one.used), str(one.hard)) for one in report.quotas]
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
        whose = f"of namespace {report.only_namespace}" if report.only_namespace else "of the pool"
        return f"Every lease {whose} is accounted for by a pod.\n{more}"
    rows = [
        (one.holder, one.place, str(one.at_pool.held), str(one.at_pool.leases), one.why)
        for one in report.unaccounted
    ]
    title = "Holders that no pod accounts for:\n"
    return title + box(("Holder", "Place", "holds", "leases", "why"), rows, frozenset((2, 3))) + more


def _called(pod: AskingPod) -> str:
    return f"{pod.namespace}/{pod.notebook or pod.name}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
