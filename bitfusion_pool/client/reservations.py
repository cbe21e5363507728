"""`bitfusion request_gpus`, `client` and `release_gpus`: GPUs that stay allocated between commands.

No process holds such a lease. It is released `auto_release` (an emulation setting, 10 minutes) after its
request or after the last `client` that used it.
"""

from __future__ import annotations

import os

from bitfusion_client.command_line import parse_options
from bitfusion_client.errors import ClientFailed, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client import requested_gpus, signals
from bitfusion_pool.client.acquisition import acquire, announce
from bitfusion_pool.client.allocation_file import read_allocation, remove_allocation
from bitfusion_pool.client.first_contact import claim_client_id
from bitfusion_pool.client.holder import this_holder
from bitfusion_pool.client.lease import Lease, server_of
from bitfusion_pool.client.log_output import LogOutput
from bitfusion_pool.client.program import parse_program, run_program
from bitfusion_pool.ledger.entries import HELD, RESERVED
from bitfusion_pool.ledger.lease_lock import LeaseLock
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.ledger.old_pool import OLD_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def request_gpus(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Take GPUs and leave them allocated; `-f FILE` says where to write the allocation file."""
    options = {"f": ""}
    request, rest = parse_options(args, other=options, count_may_be_a_word=True)
    if rest:
        raise UsageError(f"request_gpus runs no program: {rest[0]}")
    with Ledger(environ) as ledger:
        emulation = ledger.emulation
        signals.raise_on_signals(emulation.sigint, emulation.sigterm)
        session = claim_client_id(ledger)
        lease = acquire(ledger, session, request, this_holder((), environ), RESERVED)
        try:
            path = announce(session, lease, ledger.folder, options["f"])
            requested_gpus.remember(path, environ)
            ledger.renew(lease.entry.entry_id, emulation.auto_release)
        except BaseException:
            ledger.release(lease.entry.entry_id)
            raise
        finally:
            lease.lock.close()
    return 0


def client(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program with GPUs that were requested before; `-f FILE` names the allocation file."""
    path, rest = _file_option(args)
    program = parse_program(rest)
    path = path or requested_gpus.newest(environ)
    lease_id, environ = _read_lease_id(path, environ)
    with Ledger(environ) as ledger:
        emulation = ledger.emulation
        signals.raise_on_signals(emulation.sigint, emulation.sigterm)
        session = claim_client_id(ledger)
        lease = _join(ledger, lease_id, path)
        mask = signals.block()
    try:
        return run_program(program, environ, session, lease, mask)
    finally:
        with Ledger(environ) as ledger:
            # from now on the time to live counts again
            ledger.renew(lease_id, emulation.auto_release)
        lease.lock.close()


def release_gpus(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Release GPUs that `request_gpus`, or a `run` that was killed, left allocated."""
    path, rest = _file_option(args)
    if rest:
        raise UsageError(f"unexpected word: {rest[0]}")
    path = path or requested_gpus.newest(environ)
    lease_id, environ = _read_lease_id(path, environ)
    with Ledger(environ) as ledger:
        log = LogOutput(ledger.emulation.stream)
        entry = ledger.entry(lease_id)
        if entry is not None and os.getuid() not in (0, entry.holder.uid):
            raise ClientFailed("", f"the GPUs of {path} belong to {entry.holder.user}")
        log.log(f"Releasing GPUs from config file '{path}'...")
        ledger.release(lease_id)
    remove_allocation(path)
    requested_gpus.forget(path, environ)
    log.log(f"Released GPUs on 1 servers and removed generated config file '{path}'")
    return 0


def _join(ledger: Ledger, lease_id: str, path: str) -> Lease:
    gone = ClientFailed(
        "",
        f"the GPUs of {path} are no longer allocated: released, or not used for too long",
        "request GPUs again: bitfusion request_gpus",
    )
    try:
        lock = LeaseLock.join(ledger.folder, lease_id)
    except OSError:
        raise gone from None
    try:
        # with the lock held, nobody takes the lease for one that is over
        entry = ledger.entry(lease_id)
        if entry is None or entry.state != HELD or not ledger.renew(lease_id, ledger.emulation.auto_release):
            raise gone
        return Lease(entry, server_of(ledger.servers, entry), lock)
    except BaseException:
        lock.close()
        raise


def _file_option(args: Sequence[str]) -> tuple[str, list[str]]:
    rest = list(args)
    path = ""
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        flag, equals, value = word.partition("=")
        if flag not in ("-f", "--f"):
            raise UsageError(f"flag provided but not defined: {flag}")
        if not equals:
            if not rest:
                raise UsageError(f"flag needs an argument: {flag}")
            value = rest.pop(0)
        path = value
    return path, rest


def _read_lease_id(path: str, environ: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """The lease that the file names, and the environment with the pool it is in."""
    try:
        lease_id, folder = read_allocation(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ClientFailed("", f"allocation file {path} cannot be read: {why}") from None
    if folder == OLD_FOLDER:
        was = f"the pool of an earlier version, {folder}, which is no longer used"
        raise ClientFailed("", f"allocation file {path} is of {was}; remove it: rm {path}")
    return lease_id, {**environ, "BITFUSION_POOL_DIR": folder} if folder else environ
