"""How much one user, or one token, may take of a pool, and how many units its leases take. Pure.

Each `check_…` raises a Refusal for what is over a limit.

Units are hundredths of a GPU. A share counts as it was asked for: 2 GPUs × 50 % are 100 units. So many MiB
count as the share that they are of the device's memory, rounded up once, as everywhere
(`bitfusion_client.kubernetes.sizes.units`). While it is open which device it will be, because devices of
several sizes could serve the request, the smallest one counts: a limit that lets a request in is kept
whichever it gets.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.sizes import UNITS_PER_GPU, units
from bitfusion_client.request.decimals import plain_number
from bitfusion_pool.inventory.placement import candidates
from bitfusion_pool.ledger.entries import WAITING
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.message import encoded_size
from bitfusion_pool.service.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.access.token_rules import TokenLimits
    from bitfusion_pool.inventory.servers import Server
    from bitfusion_pool.ledger.entries import Entry

_MOST_FILTERS = 16
_LONGEST_REQUEST = 2048  # bytes, as JSON
_END_SOMETHING = "end something of yours first; `bitfusion smi` shows who holds what"
_NOTHING_ALLOWED = "ask the administrator who set this limit for units"
_ASK_FOR_LESS = "ask for less, GPUs times share at most {} %, or ask the administrator who set this limit"


@dataclass(frozen=True, slots=True)
class UserLimits:
    """UserLimits of one user; 0 means no limit.

    A request that waits counts as a lease, because it becomes one without being asked again.

    Attributes:
        leases: Leases and requests together.
        gpus: GPUs of all these together, whatever the shares.
        waiting: Requests that wait.
        of: Whose limits they are, for people.
        units: Hundredths of a GPU of all these together; None means no limit, and 0 that nothing is allowed.
    """

    leases: int = 0
    gpus: int = 0
    waiting: int = 0
    of: str = "one user of this pool"
    units: int | None = None


def limits_of_token(own: TokenLimits, others: UserLimits) -> UserLimits:
    """The limits of a token's name: its own, and those of every user where it has none."""
    return UserLimits(
        others.leases if own.leases is None else own.leases,
        others.gpus if own.gpus is None else own.gpus,
        others.waiting if own.waiting is None else own.waiting,
        "the name of your token",
        own.units,
    )


def check_length(request: GpuRequest) -> None:
    """Refuse a request that nobody writes by hand: whoever looks at the queue pays for it again and again."""
    size = encoded_size(request.to_json())
    if len(request.filters) > _MOST_FILTERS:
        found = f"this request has {len(request.filters)} filters, and this pool takes {_MOST_FILTERS}"
    elif size > _LONGEST_REQUEST:
        found = f"this request has {size} bytes, and this pool takes {_LONGEST_REQUEST}"
    else:
        return
    raise Refusal(refusal_codes.INVALID_REQUEST, found, "name fewer filters and servers")


def check_share(
    most: float,
    request: GpuRequest,
    possible: Mapping[str, Sequence[tuple[int, int]]],
    servers: Sequence[Server],
) -> None:
    """Refuse a request for more of a GPU than a token allows, which is `most` of it.

    Whichever it would get of the `possible` ones of these servers, which are from `placement.candidates`.
    """
    for server in servers:
        for number, needed in possible.get(server.key, ()):
            memory_mib = server.device(number).memory_mib
            # -p rounds to whole MiB
            if needed > round(most * memory_mib) and request.partial != most:
                raise Refusal(
                    refusal_codes.OVER_LIMIT,
                    f"your token allows {plain_number(round(most * 100, 4))} % of each GPU, "
                    f"which is {int(most * memory_mib)} MiB of GPU {number} of {server.key}, "
                    f"and this request is for {needed} MiB",
                    f"ask for less, such as -p {plain_number(most)}",
                )


def check_limits(limits: UserLimits, counts: dict[str, tuple[int, int]], gpus: int) -> None:
    """Refuse a request for `gpus` GPUs of a user who has `counts`: by state, (entries, GPUs)."""
    leases = sum(entries for entries, _ in counts.values())
    taken = sum(found for _, found in counts.values())
    waiting = counts.get(WAITING, (0, 0))[0]
    if limits.leases and leases + 1 > limits.leases:
        raise _refused(limits, f"{limits.leases} leases, waiting requests included, and you have {leases}")
    if limits.gpus and taken + gpus > limits.gpus:
        raise _refused(
            limits, f"{limits.gpus} GPUs, you have or wait for {taken}, and this request is for {gpus}"
        )
    if limits.waiting and waiting + 1 > limits.waiting:
        raise _refused(limits, f"{limits.waiting} waiting requests, and you have {waiting}")


def check_units(limits: UserLimits, taken: int, asked: int) -> None:
    """Refuse a request for `asked` units of a user whose leases and requests have `taken`."""
    if limits.units is None or taken + asked <= limits.units:
        return
    found = f"{limits.units} units, {UNITS_PER_GPU} are one GPU, you have or wait for {taken}"
    advice = _END_SOMETHING
    if asked > limits.units:
        advice = _ASK_FOR_LESS.format(limits.units) if limits.units else _NOTHING_ALLOWED
    raise _refused(limits, f"{found}, and this request is for {asked}", advice)


def units_of_request(request: GpuRequest, servers: Sequence[Server]) -> int:
    """The most units that a request may take of these servers, whichever of their devices it gets.

    0 if none of them could ever serve it: the ledger refuses it in its own words.
    """
    if request.memory_mib is None:
        return units(request)
    possible = candidates(request, servers)
    sizes = [
        server.device(number).memory_mib for server in servers for number, _ in possible.get(server.key, ())
    ]
    return units(request, min(sizes)) if sizes else 0


def units_of_entries(entries: Iterable[Entry], servers: Sequence[Server]) -> int:
    """The units of leases and of requests that wait; a lease counts by the devices it has."""
    memory = {
        (server.key, device.number): device.memory_mib for server in servers for device in server.devices
    }
    return sum(_units_of_entry(entry, servers, memory) for entry in entries)


def _units_of_entry(entry: Entry, servers: Sequence[Server], memory: Mapping[tuple[str, int], int]) -> int:
    request = entry.request
    if request.memory_mib is None:
        return units(request)
    if not entry.shares:
        return units_of_request(request, servers)
    # a device that has gone from the pool, or shrunk below the lease, counts as a whole one
    sizes = [memory.get((share.server, share.number), share.memory_mib) for share in entry.shares]
    return units(request, max(min(sizes), request.memory_mib))


def _refused(limits: UserLimits, what: str, advice: str = _END_SOMETHING) -> Refusal:
    return Refusal(refusal_codes.OVER_LIMIT, f"{limits.of} may have {what}", advice)
