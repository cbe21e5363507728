"""`bitfusion health`: looks at the pool and at this machine. Every line is a check that was really made."""

from __future__ import annotations

import os
import sys

from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client.first_contact import claim
from bitfusion_pool.client.log_output import Speaker, say
from bitfusion_pool.inventory.configuration import configuration_path, read_configuration
from bitfusion_pool.ledger.lease_lock import LifeLock, is_alive
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.pool_folder import pool_folder
from bitfusion_pool.ledger.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_pool.inventory.servers import Server

TAGS = ("PASS", "INFO", "SKIPPED", "MARGINAL", "FATAL")
ROOM_MIB = 16  # the ledger stays far below a megabyte; a disk this full is about to fail
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs")


class Report:
    """One section: a heading, groups of checks, the totals."""

    def __init__(self, title: str) -> None:
        self.lines = [title, "=====", ""]
        self.totals = dict.fromkeys(TAGS, 0)

    def group(self, name: str) -> None:
        self.lines += [f"{name} checks:", "====="]

    def add(self, tag: str, text: str) -> None:
        self.totals[tag] += 1
        self.lines.append(f"[{tag:<8}] {text}")

    def check(self, text: str, works: Callable[[], str]) -> None:
        """PASS with what `works` returns behind the text, FATAL with its error."""
        try:
            found = works()
        except (OSError, BitfusionError) as error:
            self.add("FATAL", f"{text}: {getattr(error, 'strerror', None) or error}")
        else:
            self.add("PASS", f"{text}: {found}" if found else text)

    def text(self) -> str:
        totals = [f"{tag}: {count}" for tag, count in self.totals.items()]
        return "\n".join([*self.lines, "", *totals, "", ""])


def health(environ: Mapping[str, str]) -> int:
    """Reports for every server, then for localhost, on stdout; status 1 if a check is FATAL."""
    reports = []
    problem: BitfusionError | None = None
    try:
        with Ledger(environ) as ledger:
            claim(ledger, Speaker(ledger.manners.stream))
            snapshot = take_snapshot(ledger)
            reports = [_server_report(snapshot, server) for server in ledger.servers]
    except BitfusionError as error:
        problem = error
    reports.append(_local_report(environ))
    for report in reports:
        say(1, report.text())
    if problem is not None:
        raise problem
    return 1 if any(report.totals["FATAL"] for report in reports) else 0


def _server_report(snapshot: Snapshot, server: Server) -> Report:
    report = Report(f"Health report for server: {server.key}")
    report.group("System Resources")
    memory = sum(device.memory_mib for device in server.devices)
    has = f"{len(server.devices)} GPUs, {memory} MiB of memory"
    report.add("PASS" if server.devices else "FATAL", f"Check GPUs: {has}")
    simulated = sum(device.simulated for device in server.devices)
    if simulated:
        report.add(
            "INFO", f"GPUs simulated: {simulated} of {len(server.devices)}, programs compute on the CPU"
        )
    report.add("INFO", f"Tasks running: {len(snapshot.tasks(server))}")
    waiting = sum(server.key in entry.servers for entry in snapshot.waiting)
    report.add("INFO", f"Requests waiting: {waiting}")
    report.lines.append("")
    report.group("Consistency")
    over = [one.number for one in server.devices if snapshot.free[server.key, one.number] < 0]
    if over:
        report.add(
            "FATAL", f"Check GPU memory handed out: more than there is on GPU {' '.join(map(str, over))}"
        )
    else:
        report.add("PASS", "Check GPU memory handed out: nowhere more than there is")
    gone = {
        share.number
        for entry in snapshot.held
        for share in entry.shares
        if share.server == server.key and share.number not in {one.number for one in server.devices}
    }
    if gone:
        report.add(
            "MARGINAL", f"Check leases: GPU {' '.join(map(str, gone))} is leased but no longer configured"
        )
    lost = [entry.entry_id for entry in snapshot.tasks(server) if entry.entry_id in snapshot.lost]
    if lost:
        report.add(
            "MARGINAL", f"Check lock files: missing for {' '.join(lost)}; see bitfusion-pool reap --force"
        )
    else:
        report.add("PASS", "Check lock files: every lease has its own")
    return report


def _local_report(environ: Mapping[str, str]) -> Report:
    folder = pool_folder(environ)
    report = Report("Health report for localhost")
    report.group("Software Versions")
    current = ".".join(map(str, sys.version_info[:3]))
    report.add("PASS" if sys.version_info >= (3, 10) else "FATAL", f"Check Python version >= 3.10: {current}")
    report.lines.append("")
    report.group("System Resources")
    report.check("Check pool folder", lambda: _writable(folder))
    report.check("Check file locks", lambda: _locks_work(folder))
    report.check("Check named pipes", lambda: _pipes_work(folder))
    _check_file_system(report, folder)
    _check_room(report, folder)
    _check_open_files(report)
    report.lines.append("")
    report.group("Consistency")
    report.check("Check pool ledger", lambda: _ledger_is_whole(environ))
    report.check("Check pool configuration", lambda: _configuration(folder, environ))
    return report


def _writable(folder: str) -> str:
    probe = f"{folder}/.health-{os.getpid()}"
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(fd, b"health")
    finally:
        os.close(fd)
        os.unlink(probe)
    return folder


def _locks_work(folder: str) -> str:
    name = f"health-{os.getpid()}"
    lock = LifeLock.create(folder, name, 0o600)
    try:
        if not is_alive(folder, name):
            raise OSError("a lock that is held is not seen")
        lock.close()
        if is_alive(folder, name):
            raise OSError("a lock that is free is taken for held")
    finally:
        lock.remove()
    return ""


def _pipes_work(folder: str) -> str:
    from bitfusion_pool.ledger.wake_up import Bell, ring

    name = f"health-{os.getpid()}"
    bell = Bell(folder, name, 0o600)
    try:
        ring(folder, name)
        if not bell.wait(1):
            raise OSError("a waiter cannot be woken; places in the queue are noticed late")
    finally:
        bell.close()
    return ""


def _check_file_system(report: Report, folder: str) -> None:
    best, kind = "", ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, place, found, *_ = line.split()
                inside = place == "/" or folder == place or folder.startswith(place + "/")
                if inside and len(place) >= len(best):
                    best, kind = place, found
    except (OSError, ValueError):
        report.add("SKIPPED", "Check file system: /proc/self/mounts cannot be read")
        return
    if kind in NETWORK_FILE_SYSTEMS:
        report.add("MARGINAL", f"Check file system: {kind} is a network's, its locks may not be kept")
    else:
        report.add("PASS", f"Check file system: {kind}")


def _check_room(report: Report, folder: str) -> None:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        report.add("SKIPPED", f"Check free space >= {ROOM_MIB} MiB: {error.strerror}")
        return
    free = found.f_bavail * found.f_frsize >> 20
    report.add("PASS" if free >= ROOM_MIB else "MARGINAL", f"Check free space >= {ROOM_MIB} MiB: {free} MiB")


def _check_open_files(report: Report) -> None:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= 4096
    report.add("PASS" if enough else "MARGINAL", f"Check ulimit -n >= 4096: {soft}")


def _ledger_is_whole(environ: Mapping[str, str]) -> str:
    with Ledger(environ) as ledger:
        return ledger.check()


def _configuration(folder: str, environ: Mapping[str, str]) -> str:
    path = configuration_path(folder, environ)
    if "BITFUSION_POOL_CONFIG" not in environ and not os.path.exists(path):
        return "none, the pool is the default one"
    read_configuration(path)
    return path
