"""How much one user, or one token, may take of a pool. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.sizes import UNITS_PER_GPU
from bitfusion_client.request.decimals import plain_number
from bitfusion_pool.ledger.entries import WAITING
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.message import encoded_size
from bitfusion_pool.service.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_pool.access.token_rules import TokenLimits
    from bitfusion_pool.inventory.servers import Server

_MOST_FILTERS = 16
_LONGEST_REQUEST = 2048  # bytes, as JSON
_END_SOMETHING = "end something of yours first; `bitfusion smi` shows who holds what"
_NOTHING_ALLOWED = "ask the administrator who set this limit for units"
_ASK_FOR_LESS = "ask for less, GPUs times share at most {} %, or ask the administrator who set this limit"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one user; 0 means no limit.

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


def limits_of_token(own: TokenLimits, others: Limits) -> Limits:
    """The limits of a token's name: its own, and those of every user where it has none."""
    return Limits(
        others.leases if own.leases is None else own.leases,
        others.gpus if own.gpus is None else own.gpus,
        others.waiting if own.waiting is None else own.waiting,
        "the name of your token",
        own.units,
    )


def check_length(request: GpuRequest) -> None:
    """Refuse a request that nobody writes by hand: whoever looks at the queue pays for it again and again.

    Raises:
        Refusal: It has too many filters, or is too long with all of them and its servers.
    """
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
    """Refuse a request for more of a GPU than a token allows, whichever of these GPUs it would get.

    Args:
        most: The share that is allowed.
        request: The request.
        possible: The devices that could serve it, from `placement.candidates`.
        servers: Where they are.

    Raises:
        Refusal: It is for more.
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


def check_limits(limits: Limits, counts: dict[str, tuple[int, int]], gpus: int) -> None:
    """Refuse a request for `gpus` GPUs of a user who has `counts`: by state, (entries, GPUs).

    Raises:
        Refusal: It is over a limit.
    """
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


def check_units(limits: Limits, taken: int, asked: int) -> None:
    """Refuse a request for `asked` units of a user whose leases and requests have `taken`.

    Raises:
        Refusal: It is over the limit.
    """
    if limits.units is None or taken + asked <= limits.units:
        return
    found = f"{limits.units} units, {UNITS_PER_GPU} are one GPU, you have or wait for {taken}"
    advice = _END_SOMETHING
    if asked > limits.units:
        advice = _ASK_FOR_LESS.format(limits.units) if limits.units else _NOTHING_ALLOWED
    raise _refused(limits, f"{found}, and this request is for {asked}", advice)


def _refused(limits: Limits, what: str, advice: str = _END_SOMETHING) -> Refusal:
    return Refusal(refusal_codes.OVER_LIMIT, f"{limits.of} may have {what}", advice)
