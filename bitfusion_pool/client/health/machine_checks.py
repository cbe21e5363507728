"""What `bitfusion health` checks on this machine: which pool is used, and its files or its service."""

from __future__ import annotations

import os
import sys
import time

from bitfusion_client.command.health_report import Report
from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_pool.client.connections.connection import software_of
from bitfusion_pool.client.pools.pool_choice import choose_pool
from bitfusion_pool.inventory.configuration import read_configuration
from bitfusion_pool.ledger.files.complaints import unreadable
from bitfusion_pool.ledger.files.lease_lock import LeaseLock, is_held
from bitfusion_pool.ledger.files.pool_folder import configuration_path, pool_folder
from bitfusion_pool.ledger.files.wake_up import WakeUp, wake
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.storage.database import open_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.client.pools.pool_choice import PoolChoice

MIN_FREE_MIB = 16  # the ledger stays far below a megabyte; a disk as full as this is about to fail
MIN_OPEN_FILES = 4096
NETWORK_FILE_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs")


def machine_report(environ: Mapping[str, str]) -> Report:
    """The report for localhost. Every check is really made."""
    report = Report("Health report for localhost")
    report.group("Software Versions")
    current = ".".join(map(str, sys.version_info[:3]))
    report.add("PASS" if sys.version_info >= (3, 10) else "FATAL", f"Check Python version >= 3.10: {current}")
    report.group("System Resources")
    choice = _check_choice(report, environ)
    if choice is not None and choice.socket:
        _check_service(report, choice.socket, environ)
        _check_open_files(report)
        report.group("Consistency")
    elif choice is not None and choice.network is not None:
        _check_open_files(report)  # each of its services has a report of its own
        report.group("Consistency")
    elif choice is not None:
        _check_own_pool(report, environ)
    return report


def _check_choice(report: Report, environ: Mapping[str, str]) -> PoolChoice | None:
    try:
        choice = choose_pool(environ)
    except BitfusionError as error:
        report.add("FATAL", f"Check pool in use: {error}")
        return None
    report.add("PASS", f"Check pool in use: {choice.where}; {choice.why}")
    return choice


def _check_service(report: Report, path: str, environ: Mapping[str, str]) -> None:
    from bitfusion_pool.client.pools.life_by_lock import LifeByLock
    from bitfusion_pool.client.pools.service_pool import ServicePool

    begun = time.monotonic()
    try:
        with ServicePool(LifeByLock(path), environ) as pool:
            welcome = pool.welcome
    except BitfusionError as error:
        report.add("FATAL", f"Check pool service: {error}")
        return
    took = round((time.monotonic() - begun) * 1000, 1)
    answered = f"{one_line(welcome.pool)} answered in {took} ms, version {welcome.protocol} of its messages"
    report.add("PASS", f"Check pool service: {answered}")
    report.add("PASS", f"Check pool software: {software_of(welcome)}")


def _check_own_pool(report: Report, environ: Mapping[str, str]) -> None:
    folder = pool_folder(environ)
    if report.check("Check pool folder", lambda: _try_to_write(folder, environ)):
        report.check("Check file locks", lambda: _try_locks(folder))
        report.check("Check named pipes", lambda: _try_pipes(folder))
        _check_file_system(report, folder)
        _check_free_space(report, folder)
    _check_open_files(report)
    report.group("Consistency")
    report.check("Check pool ledger", lambda: _check_ledger(environ))
    report.check("Check pool configuration", lambda: _check_configuration(folder, environ))


def _try_to_write(folder: str, environ: Mapping[str, str]) -> str:
    probe = f"{open_folder(folder, environ)}/.health-{os.urandom(8).hex()}"
    fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(fd, b"health")
    except OSError as error:
        raise unreadable(folder, error) from None
    finally:
        os.close(fd)
        os.unlink(probe)
    return folder


def _try_locks(folder: str) -> str:
    name = f"health-{os.urandom(8).hex()}"
    lock = LeaseLock.create(folder, name)
    try:
        if not is_held(folder, name):
            raise OSError("a lock that is held is not seen")
        lock.close()
        if is_held(folder, name):
            raise OSError("a lock that is free is taken for held")
    finally:
        lock.remove()
    return ""


def _try_pipes(folder: str) -> str:
    name = f"health-{os.urandom(8).hex()}"
    wake_up = WakeUp(folder, name)
    try:
        wake_up.open()
        wake(folder, name)
        if not wake_up.wait(1):
            raise OSError("a waiter cannot be woken; it notices its turn late")
    finally:
        wake_up.close()
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
        report.add("MARGINAL", f"Check file system: {kind} is a network file system, which may lose locks")
    else:
        report.add("PASS", f"Check file system: {kind}")


def _check_free_space(report: Report, folder: str) -> None:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        report.add("SKIPPED", f"Check free space >= {MIN_FREE_MIB} MiB: {error.strerror}")
        return
    free = found.f_bavail * found.f_frsize >> 20
    tag = "PASS" if free >= MIN_FREE_MIB else "MARGINAL"
    report.add(tag, f"Check free space >= {MIN_FREE_MIB} MiB: {free} MiB")


def _check_open_files(report: Report) -> None:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES
    report.add("PASS" if enough else "MARGINAL", f"Check ulimit -n >= {MIN_OPEN_FILES}: {soft}")


def _check_ledger(environ: Mapping[str, str]) -> str:
    with Ledger(environ) as ledger:
        return ledger.check_integrity()


def _check_configuration(folder: str, environ: Mapping[str, str]) -> str:
    path = configuration_path(folder, environ)
    if "BITFUSION_POOL_CONFIG" not in environ and not os.path.exists(path):
        return "none, the pool is the default one"
    read_configuration(path)
    return path
