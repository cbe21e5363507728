"""`bitfusion run`: takes GPUs, runs the program with them as its parent, and releases them."""

from __future__ import annotations

from bitfusion_client.command.command_line import parse_options, parse_program
from bitfusion_client.errors import BitfusionError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.states import FILE_VARIABLE
from bitfusion_pool.client import signals
from bitfusion_pool.client.allocation_file import remove_allocation
from bitfusion_pool.client.commands.acquisition import acquire, announce
from bitfusion_pool.client.holder import this_holder
from bitfusion_pool.client.pools.first_contact import claim_client_id
from bitfusion_pool.client.pools.pool_choice import open_pool
from bitfusion_pool.client.program.program import STILL_IN_USE, run_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.command.log_output import LogOutput
    from bitfusion_pool.client.pools.pool import Lease, Pool
    from bitfusion_pool.client.program.activity_teller import ActivityTeller

LOST_LIMIT_S = 3.0  # for the driver to say whether a card was lost: the program has ended, and somebody waits


def run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """The whole subcommand; returns its exit status.

    Raises:
        BitfusionError: The program was not run.
        Interrupted: A signal ended the wait for GPUs.
    """
    request, rest = parse_options(args)
    program = parse_program(rest)
    with open_pool(environ) as pool:
        signals.raise_on_signals(pool.emulation.sigint, pool.emulation.sigterm)
        contact = claim_client_id(pool)
        lease = acquire(pool, contact, request, this_holder(program, environ), environ)
        # from here on, signals are for the program
        mask = signals.block()
        path = ""
        try:
            allocation = pool.allocation(lease)
            keeper = pool.set_aside()
            path = announce(contact, lease, allocation)
            beside = keeper or _activity_teller(environ, pool, lease)
            status = run_program(program, environ, contact, lease, mask, beside)
        finally:
            release(pool, contact.log, lease, path)
        if keeper is not None and keeper.lost:
            contact.log.error(keeper.lost)
        if status and not all(device.simulated for device in lease.server.devices):
            _tell_of_lost_devices(environ, contact.log, lease)
        return status


def _activity_teller(environ: Mapping[str, str], pool: Pool, lease: Lease) -> ActivityTeller | None:
    if not environ.get(FILE_VARIABLE):
        return None
    from bitfusion_pool.client.program.activity_teller import ActivityTeller

    return ActivityTeller(environ, pool, lease)


def release(pool: Pool, log: LogOutput, lease: Lease, path: str) -> None:
    """Release the GPUs, delete the allocation file, log it.

    In this order: a reader of the log that hangs must not keep the GPUs. A pool that cannot be asked changes
    nothing about the program's exit status: the lock is gone, so the GPUs are released without this command.
    Without an allocation file `path` is empty, and nothing is logged.
    """
    problem = ""
    try:
        if not pool.release(lease):
            # a process that the program left behind still has the lock, and perhaps memory of the GPU
            problem = STILL_IN_USE
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


def _tell_of_lost_devices(environ: Mapping[str, str], log: LogOutput, lease: Lease) -> None:
    """Say whether a real GPU of the lease has a problem now, which may be why the program failed."""
    from bitfusion_pool.inventory.nvidia.nvml_problems import MISSING_CARD
    from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable, read_cards

    try:
        cards = {card.uuid: card for card in read_cards(environ, LOST_LIMIT_S).cards}
    except NvidiaUnusable:
        return  # the next request says it, with its cure
    for share in lease.entry.shares:
        device = lease.server.device(share.number)
        problem = cards[device.uuid].problem if device.uuid in cards else MISSING_CARD
        if problem:
            log.log(f"GPU {device.number} ({device.name}): {problem}", "WARN")
