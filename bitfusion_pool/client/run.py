"""`bitfusion run`: takes GPUs, runs the program with them as its parent, and releases them."""

from __future__ import annotations

from bitfusion_client.command_line import parse_options
from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client import signals
from bitfusion_pool.client.acquisition import acquire, announce
from bitfusion_pool.client.allocation_file import remove_allocation
from bitfusion_pool.client.first_contact import claim_client_id
from bitfusion_pool.client.holder import this_holder
from bitfusion_pool.client.program import parse_program, run_program
from bitfusion_pool.ledger.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_pool.client.lease import Lease
    from bitfusion_pool.client.log_output import LogOutput

STILL_IN_USE = "The GPUs stay allocated until the processes the command left behind have ended"


def run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """The whole subcommand; returns its exit status.

    Raises:
        BitfusionError: The program was not run.
        Interrupted: A signal ended the wait for GPUs.
    """
    request, rest = parse_options(args)
    program = parse_program(rest)
    with Ledger(environ) as ledger:
        signals.raise_on_signals(ledger.emulation.sigint, ledger.emulation.sigterm)
        session = claim_client_id(ledger)
        holder, inside = this_holder(program, environ), environ.get("BITFUSION_POOL_LEASE", "")
        lease = acquire(ledger, session, request, holder, inside=inside)
        # from here on, signals are for the program
        mask = signals.block()
    # closed while the program runs, because an administrator may replace the ledger meanwhile
    path = ""
    try:
        path = announce(session, lease, ledger.folder)
        return run_program(program, environ, session, lease, mask)
    finally:
        release(environ, session.log, lease, path)


def release(environ: Mapping[str, str], log: LogOutput, lease: Lease, path: str) -> None:
    """Release the GPUs, delete the allocation file, log it.

    In this order: a reader of the log that hangs must not keep the GPUs. A ledger that cannot be read changes
    nothing about the program's exit status: the lock is gone, so others release the GPUs.

    Args:
        environ: The environment of the command, which names the pool.
        log: Where to log.
        lease: The lease.
        path: The allocation file, empty if there is none; then nothing is logged.
    """
    lease.lock.close()
    problem = ""
    try:
        with Ledger(environ) as ledger:
            if ledger.is_in_use(lease.entry.entry_id):
                # a process that the program left behind still has the lock, and perhaps memory of the GPU
                problem = STILL_IN_USE
            else:
                ledger.release(lease.entry.entry_id)
    except BitfusionError as error:
        problem = f"Unable to release GPUs: {error}"
    if not path:
        return
    remove_allocation(path)
    log.log(f"Releasing GPUs from config file '{path}'...")
    if problem:
        log.log(problem, "WARN")
    else:
        log.log(f"Released GPUs on 1 servers and removed generated config file '{path}'")
