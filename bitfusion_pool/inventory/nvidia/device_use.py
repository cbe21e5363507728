"""What is used of the pool's real devices, and by whom besides the pool; what is not usable at all. Pure.

The driver tells which processes are on a card, not whose. Who asks says to whom each belongs, and who has
leased how much of which device: what an owner uses of a device beyond that is not the pool's to hand out.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_pool.inventory.nvidia.nvml_problems import MISSING_CARD
from bitfusion_pool.inventory.servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from bitfusion_pool.inventory.nvidia.cards import Card, Reading

CONTEXT_MIB = 1024
"""What CUDA itself may take beside a lease's share without being taken for somebody else's: its context and
kernels, 300 to 600 MiB a process, which no framework counts."""

MOST_NAMED = 3
STEP_MIB = 256


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a reading says of one device of the pool.

    `foreign_mib` is used by programs outside the pool, which `programs` names; it is not handed out. With a
    `problem` nothing of the device is. `percent` is how busy it is, None where the driver does not tell.
    """

    foreign_mib: int = 0
    programs: str = ""
    percent: int | None = None
    problem: str = ""

    def text(self) -> str:
        """For people, empty if there is nothing to say beside how busy it is."""
        if self.problem:
            return self.problem
        return f"{self.foreign_mib} MiB used outside the pool: {self.programs}" if self.foreign_mib else ""


UseByDevice = dict[tuple[str, int], DeviceUse]
"""By server key and device number; devices that are simulated are not in it."""

UsedDevice = tuple[str, int, DeviceUse]
"""One of them as messages have it: server key, device number, use."""

LeasedByDevice = dict[tuple[str, int], dict[str, tuple[int, ...]]]
"""The MiB of each lease by server key and device number, and by its owner: in a user's own pool each lease is
an owner, as it is known whose processes are; in that of a service each user is one."""


def use_of_devices(
    servers: Iterable[Server],
    reading: Reading,
    leased: LeasedByDevice,
    owner_of: Callable[[int], str],
    name_of: Callable[[int], str],
) -> UseByDevice:
    """The use of all real devices.

    Args:
        servers: The pool's.
        reading: The cards as they are now.
        leased: What is leased.
        owner_of: To which owner of `leased` the process with this id belongs; anything else: to nobody.
        name_of: How people know that process, ``Xorg``; empty if it is not to be seen (another container).
    """
    cards = {card.uuid: card for card in reading.cards}
    return {
        (server.key, device.number): _use(
            cards.get(device.uuid), leased.get((server.key, device.number), {}), owner_of, name_of
        )
        for server in servers
        for device in server.devices
        if not device.simulated
    }


def unreadable_use(servers: Iterable[Server], problem: str) -> UseByDevice:
    """The use of all real devices while the driver does not answer."""
    return {
        (server.key, device.number): DeviceUse(problem=problem)
        for server in servers
        for device in server.devices
        if not device.simulated
    }


def _use(
    card: Card | None,
    leased: Mapping[str, tuple[int, ...]],
    owner_of: Callable[[int], str],
    name_of: Callable[[int], str],
) -> DeviceUse:
    if card is None:
        return DeviceUse(problem=MISSING_CARD)
    if card.problem:
        return DeviceUse(problem=card.problem)
    allowed = {owner: sum(share + CONTEXT_MIB for share in shares) for owner, shares in leased.items()}
    told = {process.pid: process.memory_mib for process in card.processes}
    owners = {pid: owner_of(pid) for pid in told}
    foreign = {pid: mib for pid, mib in told.items() if owners[pid] not in allowed}
    taken = dict.fromkeys(allowed, 0)  # by those who have leases of this card
    covered = sum(allowed.values())  # what leases may use without a process that tells of it
    for owner in allowed:
        memory = [mib for pid, mib in told.items() if owners[pid] == owner]
        taken[owner] = sum(mib or 0 for mib in memory)
        if memory and None not in memory:
            covered -= allowed[owner]
    beyond = {owner: mib - allowed[owner] for owner, mib in taken.items() if mib > allowed[owner]}
    used = sum(mib or 0 for mib in foreign.values()) + sum(beyond.values())
    names = [_named(name_of(pid), f"pid {pid}") for pid in foreign]
    names += [_named(name_of(pid), f"pid {pid}, beyond its lease") for pid in told if owners[pid] in beyond]
    # what no process explains: processes in other containers are not told, and some without their memory
    hidden = card.used_mib - sum(mib or 0 for mib in told.values()) - covered
    if hidden > CONTEXT_MIB:
        used += hidden
        if not any(mib is None for mib in foreign.values()):
            names.append("programs that cannot be seen here")
    if not used:
        return DeviceUse(percent=card.percent)
    shown = names[:MOST_NAMED] + ([f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else [])
    return DeviceUse(min(used, card.memory_mib), ", ".join(shown) or "unknown", card.percent)


def _named(name: str, which: str) -> str:
    return f"{name or 'a program that cannot be seen here'} ({which})"


def steady_use(before: UseByDevice, now: UseByDevice) -> UseByDevice:
    """The use that people are told after another one: others' memory falls only by steps of `STEP_MIB`.

    A program that trains takes and frees memory all the time, and whoever waits would read of every MiB.
    """
    return {key: _steady(before.get(key), found) for key, found in now.items()}


def _steady(before: DeviceUse | None, now: DeviceUse) -> DeviceUse:
    if before is None or before.problem or not now.foreign_mib:
        return now
    if now.foreign_mib <= before.foreign_mib < now.foreign_mib + STEP_MIB:
        return DeviceUse(before.foreign_mib, now.programs, now.percent, now.problem)
    return now


def less_what_is_used(free: dict[tuple[str, int], int], use: UseByDevice) -> None:
    """Take what is used outside the pool, and devices with a problem, out of the free memory."""
    for key, found in use.items():
        if key in free:
            free[key] = min(free[key], 0) if found.problem else free[key] - found.foreign_mib


def usable_servers(servers: Iterable[Server], use: UseByDevice) -> tuple[Server, ...]:
    """The servers without the devices that have a problem: no request may begin to wait for these."""
    return tuple(_without_problems(server, use) for server in servers)


def _without_problems(server: Server, use: UseByDevice) -> Server:
    values: dict[str, Any] = {name: getattr(server, name) for name in Server.__match_args__}
    values["devices"] = tuple(
        device for device in server.devices if not use.get((server.key, device.number), DeviceUse()).problem
    )
    return Server(**values)


def use_to_json(use: UseByDevice) -> list[list[Any]]:
    """As the ledger keeps it."""
    return [
        [server, number, found.foreign_mib, found.programs, found.percent, found.problem]
        for (server, number), found in use.items()
    ]


def use_from_json(rows: Iterable[Any]) -> UseByDevice:
    """The opposite of `use_to_json`; `rows` are what we wrote ourselves."""
    return {
        (server, number): DeviceUse(foreign, programs, percent, problem)
        for server, number, foreign, programs, percent, problem in rows
    }
