"""`bitfusion request_gpus`, `client` and `release_gpus`: GPUs that stay allocated between commands.

No process holds such a lease. It is released `auto_release` (an emulation setting, 10 minutes) after its
request or after the last `client` that used it.
"""

from __future__ import annotations

from bitfusion_client.command.command_line import parse_options, parse_program
from bitfusion_client.command.log_output import LogOutput
from bitfusion_client.errors import ClientFailed, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client import signals
from bitfusion_pool.client.allocation_file import read_allocation, remove_allocation
from bitfusion_pool.client.commands import requested_gpus
from bitfusion_pool.client.commands.acquisition import acquire, announce
from bitfusion_pool.client.holder import this_holder
from bitfusion_pool.client.pools.first_contact import claim_client_id
from bitfusion_pool.client.pools.pool_choice import OWN, VARIABLE, open_pool
from bitfusion_pool.client.program.program import STILL_IN_USE, run_program
from bitfusion_pool.ledger.entries import RESERVED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.client.allocation_file import Allocation
    from bitfusion_pool.client.pools.pool import Lease, Pool


def request_gpus(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Take GPUs and leave them allocated; `-f FILE` says where to write the allocation file."""
    options = {"f": ""}
    request, rest = parse_options(args, other=options, count_may_be_a_word=True)
    if rest:
        raise UsageError(f"request_gpus runs no program: {rest[0]}")
    with open_pool(environ) as pool:
        signals.raise_on_signals(pool.emulation.sigint, pool.emulation.sigterm)
        contact = claim_client_id(pool)
        lease = acquire(pool, contact, request, this_holder((), environ), environ, RESERVED)
        try:
            path = announce(contact, lease, pool.allocation(lease), options["f"])
            requested_gpus.remember(path, environ)
            pool.keep(lease)
        except BaseException:
            pool.release(lease)
            raise
    return 0


def client(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program with GPUs that were requested before; `-f FILE` names the allocation file."""
    path, rest = _file_option(args)
    program = parse_program(rest)
    path = path or requested_gpus.newest(environ)
    allocation = _read(path)
    environ = _with_pool_of(allocation, environ)
    with open_pool(environ) as pool:
        signals.raise_on_signals(pool.emulation.sigint, pool.emulation.sigterm)
        contact = claim_client_id(pool)
        lease = _join(pool, allocation, path)
        mask = signals.block()
        try:
            keeper = pool.set_aside()
            status = run_program(program, environ, contact, lease, mask, keeper)
        finally:
            pool.keep(lease)
        if keeper is not None and keeper.lost:
            contact.log.error(keeper.lost)
        return status


def release_gpus(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """Release GPUs that `request_gpus`, or a `run` that was killed, left allocated."""
    path, rest = _file_option(args)
    if rest:
        raise UsageError(f"unexpected word: {rest[0]}")
    path = path or requested_gpus.newest(environ)
    allocation = _read(path)
    with open_pool(_with_pool_of(allocation, environ)) as pool:
        log = LogOutput(pool.emulation.stream)
        log.log(f"Releasing GPUs from config file '{path}'...")
        is_free = pool.end(allocation)
    remove_allocation(path)
    requested_gpus.forget(path, environ)
    if is_free:
        log.log(f"Released GPUs on 1 servers and removed generated config file '{path}'")
    else:
        log.log(STILL_IN_USE, "WARN")
    return 0


def _join(pool: Pool, allocation: Allocation, path: str) -> Lease:
    lease = pool.join(allocation)
    if lease is None:
        raise ClientFailed(
            "",
            f"the GPUs of {path} are no longer allocated: released, or not used for too long",
            "request GPUs again: bitfusion request_gpus",
        )
    return lease


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


def _read(path: str) -> Allocation:
    try:
        return read_allocation(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ClientFailed("", f"allocation file {path} cannot be read: {why}") from None


def _with_pool_of(allocation: Allocation, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment that names the pool in which the lease is."""
    if allocation.service:
        return {**environ, VARIABLE: allocation.service}
    if allocation.folder:
        return {**environ, VARIABLE: OWN, "BITFUSION_POOL_DIR": allocation.folder}
    return environ


SUBCOMMANDS = {"request_gpus": request_gpus, "client": client, "release_gpus": release_gpus}
