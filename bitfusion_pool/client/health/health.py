"""`bitfusion health`: reports about the pool's servers and about this machine."""

from __future__ import annotations

from bitfusion_client.command.health_report import Report
from bitfusion_client.command.log_output import write_text
from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.health.machine_checks import machine_report
from bitfusion_pool.client.pools.first_contact import claim_client_id
from bitfusion_pool.client.pools.pool_choice import choose_pool, open_pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.snapshot import Snapshot


def health(environ: Mapping[str, str]) -> int:
    """Reports for every server, then for localhost, on stdout; status 1 if a check is FATAL.

    Raises:
        BitfusionError: The pool cannot be used; the report for localhost is written first.
    """
    reports = []
    problem: BitfusionError | None = None
    try:
        reports = network_reports(environ)
        with open_pool(environ) as pool:
            claim_client_id(pool)
            snapshot = pool.snapshot()
            of_services = {report.title: report for report in reports}
            for server in snapshot.servers:
                report = of_services.get(_title(server)) or Report(_title(server))
                add_server(report, snapshot, server)
                reports += [report] if report not in reports else []
    except BitfusionError as error:
        problem = error
    reports.append(machine_report(environ))
    for report in reports:
        write_text(1, report.text())
    if problem is not None:
        raise problem
    return 1 if any(report.totals["FATAL"] for report in reports) else 0


def network_reports(environ: Mapping[str, str]) -> list[Report]:
    """A report for every service on the network that this command may use; empty with any other pool.

    Raises:
        BitfusionError: No pool can be chosen, or the files of a network client cannot be used.
    """
    choice = choose_pool(environ)
    if choice.network is None:
        return []
    import time

    from bitfusion_pool.client.connections.network_service import services_of
    from bitfusion_pool.client.health.network_checks import network_report

    return [network_report(service, time.time()) for service in services_of(choice.network, choice.only)]


def _title(server: Server) -> str:
    return f"Health report for server: {server.key}"


def add_server(report: Report, snapshot: Snapshot, server: Server) -> None:
    """What the pool says about one server; to the report of its service, where that is called the same."""
    report.group("System Resources")
    memory = sum(device.memory_mib for device in server.devices)
    has = f"{len(server.devices)} GPUs, {memory} MiB of memory"
    report.add("PASS" if server.devices else "FATAL", f"Check GPUs: {has}")
    simulated = sum(device.simulated for device in server.devices)
    if simulated:
        of = f"{simulated} of {len(server.devices)}"
        report.add("INFO", f"GPUs simulated: {of}, programs compute on the CPU")
    leases = snapshot.leases_on(server)
    report.add("INFO", f"Tasks running: {len(leases)}")
    waiting = sum(server.key in entry.servers for entry in snapshot.waiting)
    report.add("INFO", f"Requests waiting: {waiting}")
    report.group("Consistency")
    over = [one.number for one in server.devices if snapshot.free[server.key, one.number] < 0]
    if over:
        numbers = " ".join(map(str, over))
        report.add("FATAL", f"Check GPU memory handed out: more than there is on GPU {numbers}")
    else:
        report.add("PASS", "Check GPU memory handed out: nowhere more than there is")
    known = {device.number for device in server.devices}
    leased = {share.number for entry in leases for share in entry.shares if share.server == server.key}
    if leased - known:
        numbers = " ".join(map(str, leased - known))
        report.add("MARGINAL", f"Check leases: GPU {numbers} is leased but no longer configured")
    if snapshot.of_service:
        return
    lost = [entry.entry_id for entry in leases if entry.entry_id in snapshot.without_lock_file]
    if lost:
        missing = f"missing for {' '.join(lost)}; see bitfusion-pool reap --force"
        report.add("MARGINAL", f"Check lock files: {missing}")
    else:
        report.add("PASS", "Check lock files: every lease has its own")
