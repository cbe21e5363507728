"""`bitfusion run`: takes GPUs, starts the program, stays its parent, gives the GPUs back."""

from __future__ import annotations

import os

from bitfusion_client.command_line import parse_options, split_program
from bitfusion_client.errors import BitfusionError, ClientFailed, UsageError
from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pool.client import signals
from bitfusion_pool.client.allocation import (
    partial_text,
    program_environment,
    remove_allocation,
    write_allocation,
)
from bitfusion_pool.client.first_contact import claim, holder_of, query
from bitfusion_pool.client.log_output import VERSION, Speaker
from bitfusion_pool.ledger.entries import PROCESS, WAITING
from bitfusion_pool.ledger.ledger import Ledger

KEPT = "The GPUs stay allocated until the processes the command left behind have ended"

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.request import GpuRequest
    from bitfusion_pool.inventory.emulation import Manners
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry, Holder, Standing
    from bitfusion_pool.ledger.lease_lock import LifeLock


def run(args: Sequence[str], environ: Mapping[str, str]) -> int:
    """The whole command; returns its exit status. Raises BitfusionError, signals.Interrupted."""
    request, rest = parse_options(args)
    program = split_program(rest)
    if not program or not program[0]:
        raise UsageError("there is no program to run")
    with Ledger(environ) as ledger:
        speaker = Speaker(ledger.manners.stream)
        signals.raise_on_signals(ledger.manners.sigint, ledger.manners.sigterm)
        client_id = claim(ledger, speaker)
        entry, lock = acquire(ledger, speaker, request, holder_of(program, environ))
        # from here on signals are for the program
        before = signals.block()
        servers = ledger.servers
    # closed while the program runs: an admin may replace the ledger meanwhile
    path = ""
    try:
        server = server_of(servers, entry)
        path = announce(speaker, entry, server, ledger.folder)
        lock.share()
        given = program_environment(environ, entry, server, lock.fd)
        status = run_program(program, given, before, speaker, client_id, server, ledger.manners)
    finally:
        release(environ, speaker, entry, lock, path)
    return exit_status(status, ledger.manners)


def acquire(
    ledger: Ledger, speaker: Speaker, request: GpuRequest, holder: Holder, kind: str = PROCESS
) -> tuple[Entry, LifeLock]:
    """Ask for GPUs and wait until they are there, as loudly as the manners want. Raises BitfusionError."""
    chosen = query(ledger, speaker, request)
    entry, lock = ledger.ask(request, holder, ledger.manners.when_full == "wait", kind)
    try:
        if entry.state == WAITING:
            from bitfusion_pool.ledger.waiting import wait_for_turn

            def tell(standing: Standing) -> None:
                if ledger.manners.waiting_text == "places":
                    speaker.log(standing.text())

            entry = wait_for_turn(ledger, entry, request.timeout, tell)
        speaker.log(f"Choosing GPUs from server list [{' '.join(one.key for one in chosen)}]")
    except BaseException:
        lock.close()
        ledger.give_back(entry.entry_id)
        raise
    return entry, lock


def server_of(servers: Sequence[Server], entry: Entry) -> Server:
    """The server all of the entry's GPUs are in. Raises ClientFailed if the pool was changed under them."""
    numbers = {share.number for share in entry.shares}
    for server in servers:
        if server.key == entry.shares[0].server and numbers <= {one.number for one in server.devices}:
            return server
    raise ClientFailed(
        entry.request, f"server {entry.shares[0].server} no longer has the GPUs of this request"
    )


def announce(speaker: Speaker, entry: Entry, server: Server, folder: str, path: str = "") -> str:
    """The lines from `Requesting` to `Locked`; returns the allocation file's path. Raises PoolUnreadable."""
    from bitfusion_pool.ledger.pool_folder import unreadable

    numbers = " ".join(str(share.number) for share in entry.shares)
    memory = entry.shares[0].memory_mib
    asked = f"GPUs [{numbers}] with {memory} MiB of memory from server 0, with version {VERSION}"
    speaker.log(f"Requesting {asked}...")
    speaker.plain(f"Requested resources:\nServer List: {server.key}\nClient idle timeout: 0 min")
    try:
        path = write_allocation(entry, folder, path)
    except OSError as error:
        raise unreadable(folder, error) from error
    total = server.device(entry.shares[0].number).memory_mib
    share = partial_text(entry.request, total)
    speaker.log(
        f"Locked {len(entry.shares)} GPUs with partial memory {share}, configuration saved to '{path}'"
    )
    return path


def run_program(
    program: list[str],
    environ: dict[str, str],
    mask: set[int],
    speaker: Speaker,
    client_id: str,
    server: Server,
    manners: Manners,
) -> int:
    """Start the program as our child, wait for it; returns its status as a shell counts it.

    `mask`: the signal mask it starts with. The handled signals must be blocked in this process.
    """
    command = " ".join(program).replace("\n", " ")
    count = environ["BITFUSION_POOL_DEVICES"].count('"id": ')
    speaker.log(f"Running client command '{command}' on {count} GPUs, with the following servers:")
    speaker.log(f"{server.address} {server.dispatcher_port} {server.uuid} {server.port} {VERSION}")
    speaker.plain("")
    default = (signals.SIGPIPE, signals.SIGXFSZ)  # which Python ignores, and programs would inherit that
    try:
        child = os.posix_spawnp(program[0], program, environ, setsigmask=mask, setsigdef=default)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        why = "executable file not found in $PATH" if missing else (error.strerror or str(error)).lower()
        speaker.error(f'exec: "{program[0]}": {why}')
        return 127 if missing else 126
    if manners.telemetry != "off":
        speaker.log(f"Command started, launching telemetry process: {client_id} | {server.key}")
    helper = _start_telemetry(int(environ["BITFUSION_POOL_LOCK_FD"])) if manners.telemetry == "on" else 0
    try:
        return _wait(child, manners)
    finally:
        if helper:
            os.kill(helper, 9)
            os.waitpid(helper, 0)


def _wait(child: int, manners: Manners) -> int:
    while True:
        number, from_terminal = signals.next_signal()
        if number == signals.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            continue
        manner = signals.manner_of(number, manners.sigint, manners.sigterm)
        if manner == "die":
            signals.die_of(number)
        elif manner == "forward" and not from_terminal:
            # not reaped yet, so the number still is our child's
            os.kill(child, number)


def _start_telemetry(lock_fd: int) -> int:
    """A process beside the program, as client 4.0 has one; it does nothing and ends with the wrapper."""
    parent = os.getpid()
    helper = os.fork()
    if helper:
        return helper
    try:
        import time

        os.close(lock_fd)  # it uses no GPU
        while os.getppid() == parent:
            time.sleep(0.2)
    finally:
        os._exit(0)


def release(environ: Mapping[str, str], speaker: Speaker, entry: Entry, lock: LifeLock, path: str) -> None:
    """Give the GPUs back and say so. First the deed: a reader that hangs must not keep them.

    A ledger that cannot be read changes nothing about the program's status: with the lock gone, others take
    the GPUs back.
    """
    lock.close()
    problem = ""
    try:
        with Ledger(environ) as ledger:
            if ledger.in_use(entry.entry_id):
                # something the program left behind still has the lock, and perhaps memory of the GPU
                problem = KEPT
            else:
                ledger.give_back(entry.entry_id)
    except BitfusionError as error:
        problem = f"Unable to release GPUs: {error}"
    if not path:
        return
    remove_allocation(path)
    speaker.log(f"Releasing GPUs from config file '{path}'...")
    if problem:
        speaker.log(problem, "WARN")
    else:
        speaker.log(f"Released GPUs on 1 servers and removed generated config file '{path}'")


def exit_status(status: int, manners: Manners) -> int:
    """The command's status from the program's."""
    if manners.exit_codes == "zero":
        return 0
    return 1 if status and manners.exit_codes == "one" else status
