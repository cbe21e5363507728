"""The whole pool as a service shows it, in the form in which the commands show any pool."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import one_line
from bitfusion_pool.client.holder import short_label
from bitfusion_pool.ledger.entries import HELD, WAITING, Entry, Holder
from bitfusion_pool.ledger.snapshot import Snapshot

if TYPE_CHECKING:
    from bitfusion_pool.inventory.nvidia.device_use import DeviceUse
    from bitfusion_pool.messages.from_service import PoolSnapshot

_LONGEST_PROGRAMS = 400  # characters
_LONGEST_VERSION = 40


def snapshot_of(shown: PoolSnapshot, place: str, software: str = "") -> Snapshot:
    """The snapshot in a message of the service at `place`; `software` is its version, from its welcome."""
    entries = [_printable(entry) for entry in shown.entries]
    free = {(server.key, device.number): 0 for server in shown.servers for device in server.devices}
    free.update({(share.server, share.number): share.memory_mib for share in shown.free})
    return Snapshot(
        place,
        shown.taken_at,
        shown.clock,
        shown.servers,
        tuple(entry for entry in entries if entry.state == HELD),
        tuple(entry for entry in entries if entry.state == WAITING),
        free,
        (),
        True,
        shown.left_out,
        {(server, number): _shown(use) for server, number, use in shown.use},
        one_line(software, _LONGEST_VERSION),
    )


def _shown(use: DeviceUse) -> DeviceUse:
    """Other users chose the names of their programs."""
    values = one_line(use.programs, _LONGEST_PROGRAMS), use.percent, one_line(use.problem)
    return type(use)(max(0, use.foreign_mib), *values)


def _printable(entry: Entry) -> Entry:
    """Another user chose the label, and must not write to our terminal with it."""
    holder = entry.holder
    shown = Holder(short_label(holder.label), one_line(holder.user), holder.pid, holder.host, holder.uid)
    return Entry(
        entry.number,
        entry.entry_id,
        entry.state,
        entry.kind,
        entry.request,
        shown,
        entry.servers,
        entry.requested_at,
        entry.granted_at,
        entry.expires_at,
        entry.shares,
        entry.activity,
    )
