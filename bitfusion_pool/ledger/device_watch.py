"""Reads the real devices of a user's own pool and notes in the ledger what programs outside the pool use.

There is no daemon: the command that shows or takes GPUs reads them itself, in a process of its own, and only
if the pool has real devices. A service reads them on its own schedule, and knows better whose processes are.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_pool.ledger.entries import HELD
from bitfusion_pool.ledger.files.service_lock import is_served

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_pool.inventory.nvidia.cards import Reading
    from bitfusion_pool.inventory.nvidia.device_use import LeasedByDevice, UseByDevice
    from bitfusion_pool.ledger.entries import Entry
    from bitfusion_pool.ledger.ledger import Ledger

LEASE_VARIABLE = b"BITFUSION_POOL_LEASE="
MOST_BYTES = 1 << 20


def read_devices(ledger: Ledger, environ: Mapping[str, str]) -> None:
    """Read the real devices and note their use; nothing without such devices, or where a service reads them.

    Called before a request for GPUs. A service knows better whose programs are on them: its account may read
    nobody's environment.

    Raises:
        NvidiaUnusable: The driver does not answer. That is noted, too: nothing is handed out until it does.
        PoolUnreadable: The pool's files cannot be used.
    """
    if not ledger.has_real_devices or _is_read_by_service(ledger.folder):
        return
    from bitfusion_pool.inventory.nvidia.device_use import unreadable_use
    from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable, read_cards

    try:
        reading = read_cards(environ)
    except NvidiaUnusable as error:
        ledger.note_device_use(unreadable_use(ledger.servers, error.answered))
        raise
    ledger.note_device_use(use_now(ledger, reading, lambda entry: entry.entry_id, _lease_of, process_name))


def use_now(
    ledger: Ledger,
    reading: Reading,
    owner_of_lease: Callable[[Entry], str],
    owner_of_process: Callable[[int], str],
    name_of: Callable[[int], str],
) -> UseByDevice:
    """What a reading says of the ledger's real devices, with its leases as they are now.

    Args:
        ledger: The ledger.
        reading: The cards as they are now.
        owner_of_lease: Who may use what a lease holds.
        owner_of_process: Who the process with this id belongs to, in the same words.
        name_of: How people know that process; empty if it is not to be seen.

    Raises:
        PoolUnreadable: The pool's files cannot be used.
    """
    from bitfusion_pool.inventory.nvidia.device_use import use_of_devices

    leased: LeasedByDevice = {}
    for entry in ledger.entries():
        owner = owner_of_lease(entry) if entry.state == HELD else ""
        for share in entry.shares:
            of_device = leased.setdefault((share.server, share.number), {})
            of_device[owner] = (*of_device.get(owner, ()), share.memory_mib)
    return use_of_devices(ledger.servers, reading, leased, owner_of_process, name_of)


def try_to_read_devices(ledger: Ledger, environ: Mapping[str, str]) -> None:
    """The same for who only shows the devices, or waits already: a driver that does not answer is no error.

    Raises:
        PoolUnreadable: The pool's files cannot be used.
    """
    if not ledger.has_real_devices:
        return
    from bitfusion_pool.inventory.nvidia.reading_process import NvidiaUnusable

    try:
        read_devices(ledger, environ)
    except NvidiaUnusable:
        pass  # noted, and shown beside each device


def _is_read_by_service(folder: str) -> bool:
    try:
        return is_served(folder)
    except OSError:
        return False


def process_name(pid: int) -> str:
    """The name of a process of this machine, empty if it is not to be seen."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as comm:
            return one_line(comm.read(64))  # its owner chooses it
    except OSError:
        return ""


def _lease_of(pid: int) -> str:
    """The lease under which a process was started; empty if it was under none, or is another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            variables = environ.read(MOST_BYTES).split(b"\0")
    except OSError:
        return ""
    for variable in variables:
        if variable.startswith(LEASE_VARIABLE):
            return variable[len(LEASE_VARIABLE) :].decode("ascii", "replace")
    return ""
