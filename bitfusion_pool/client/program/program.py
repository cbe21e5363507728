"""Runs the program under a lease: its environment, start, telemetry process, signals, exit status."""

from __future__ import annotations

import os
import sys

from bitfusion_client.command.command_line import ALL_LINES_VARIABLE
from bitfusion_client.command.log_output import VERSION
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kernel_state.states import FILE_VARIABLE
from bitfusion_pool.client import signals
from bitfusion_pool.inventory.device_sources import gpu_variables
from bitfusion_pool.json_text import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_pool.client.keeper.keeper_process import KeeperProcess
    from bitfusion_pool.client.pools.first_contact import Contact
    from bitfusion_pool.client.pools.pool import Lease
    from bitfusion_pool.client.program.activity_teller import ActivityTeller
    from bitfusion_pool.inventory.emulation import Emulation
    from bitfusion_pool.ledger.files.lease_lock import LeaseLock

LEASES_VARIABLE = "BITFUSION_POOL_LEASES"
"""The ids of all leases under which a program runs, the innermost last: `bitfusion run` may run another."""
_MOST_LEASES = 8
STILL_IN_USE = "The GPUs stay allocated until the processes the command left behind have ended"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell has them


def run_program(
    program: list[str],
    environ: Mapping[str, str],
    contact: Contact,
    lease: Lease,
    mask: set[int],
    beside: KeeperProcess | ActivityTeller | None = None,
) -> int:
    """Run the program as a child of this process, forward signals to it, and wait for its end.

    Args:
        program: The program and its arguments.
        environ: The environment of this command, to which the lease's variables are added.
        contact: From `claim_client_id`.
        lease: The GPUs it uses. The program inherits the lock.
        mask: The signal mask it starts with, from `signals.block`.
        beside: What has its beats meanwhile: from `Pool.set_aside` what keeps the lease, and may end the
            program; else what tells of its kernel, if there is one that says something.

    Returns:
        Its exit status as a shell counts it, mapped as the emulation says.
    """
    log, server = contact.log, lease.server
    lease.lock.share()
    command = " ".join(program).replace("\n", " ")
    count = len(lease.entry.shares)
    log.log(f"Running client command '{command}' on {count} GPUs, with the following servers:")
    log.log(f"{server.address} {server.dispatcher_port} {server.uuid} {server.port} {VERSION}")
    log.plain("")
    defaults = (signals.SIGPIPE, signals.SIGXFSZ)  # Python ignores them, and programs would inherit that
    given = program_environment(environ, lease)
    if "PATH" in given:
        os.environ["PATH"] = given["PATH"]  # where posix_spawnp looks for the program
    try:
        child = os.posix_spawnp(program[0], program, given, setsigmask=mask, setsigdef=defaults)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        why = "executable file not found in $PATH" if missing else (error.strerror or str(error)).lower()
        log.error(f'exec: "{program[0]}": {why}')
        return exit_status(NOT_FOUND if missing else NOT_EXECUTABLE, contact.emulation)
    if beside is not None:
        beside.program_started(child)
    telemetry = contact.emulation.telemetry
    if telemetry != "off":
        log.log(f"Command started, launching telemetry process: {contact.client_id} | {server.key}")
    helper = _start_telemetry(lease.lock) if telemetry == "on" else 0
    try:
        return exit_status(_wait(child, contact.emulation, beside), contact.emulation)
    finally:
        if helper:
            os.kill(helper, 9)
            os.waitpid(helper, 0)


def program_environment(environ: Mapping[str, str], lease: Lease) -> dict[str, str]:
    """That of the command, and what docs/reference/pool-commands.md lists."""
    outer = environ.get(LEASES_VARIABLE, "").split()
    added = {
        "BF_BIN_PATH": f"{_PACKAGE}/bin",
        "BF_ADAPTOR_PATH": f"{_PACKAGE}/",
        "BF_ADAPTOR_RDMA": "1" if lease.server.has_rdma else "0",
        "BITFUSION_POOL_LEASE": lease.entry.entry_id,
        LEASES_VARIABLE: " ".join([*outer[1 - _MOST_LEASES :], lease.entry.entry_id]),
        "BITFUSION_POOL_DEVICES": dumps(leased_devices(lease)),
        "BITFUSION_POOL_LOCK_FD": str(lease.lock.fd),
        # for nvidia-smi on its PATH, and for this command inside the program
        "BITFUSION_PYTHON": environ.get("BITFUSION_PYTHON") or sys.executable,
    }
    leased = [(lease.server.device(share.number), share.memory_mib) for share in lease.entry.shares]
    given = {**environ, **added, **gpu_variables(leased, environ)}
    for name in (ALL_LINES_VARIABLE, FILE_VARIABLE):
        given.pop(name, None)  # what runs in the program is read by somebody else, and is no kernel
    return given


def leased_devices(lease: Lease) -> list[dict[str, object]]:
    """BITFUSION_POOL_DEVICES: one object per GPU, in the order in which the program sees them."""
    found: list[dict[str, object]] = []
    for share in lease.entry.shares:
        device = lease.server.device(share.number)
        found.append(
            {
                "id": share.number,
                "name": device.name,
                "memory_mib": share.memory_mib,
                "total_mib": device.memory_mib,
                "server": lease.server.key,
                "simulated": device.simulated,
                **({} if device.simulated else {"uuid": device.uuid}),
            }
        )
    return found


def exit_status(status: int, emulation: Emulation) -> int:
    """The command's exit status, from the program's."""
    if emulation.exit_codes == "zero":
        return 0
    return 1 if status and emulation.exit_codes == "one" else status


def _wait(child: int, emulation: Emulation, beside: KeeperProcess | ActivityTeller | None) -> int:
    if beside is not None:
        signals.tick(beside.beat_s)
    while True:
        number, from_terminal = signals.next_signal(beside is not None)
        if number == signals.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        if number in (signals.SIGCHLD, signals.SIGALRM):
            if beside is not None:
                beside.look_after()
            continue
        reaction = signals.reaction(number, emulation.sigint, emulation.sigterm)
        if reaction == "die":
            signals.die_of(number)
        elif reaction == "forward" and not from_terminal:
            # not waited for yet, so the pid is still our child's
            os.kill(child, number)


def _start_telemetry(lock: LeaseLock) -> int:
    # client 4.0 has such a process beside the program; this one does nothing and ends with the wrapper
    parent = os.getpid()
    helper = os.fork()
    if helper:
        return helper
    try:
        import time

        lock.close()  # it uses no GPU
        while os.getppid() == parent:
            time.sleep(0.2)
    finally:
        os._exit(0)
