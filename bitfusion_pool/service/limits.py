"""How much one user may take of a pool. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_pool.ledger.entries import WAITING
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.service.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one user; 0 means no limit.

    A request that waits counts as a lease, because it becomes one without being asked again.

    Attributes:
        leases: Leases and requests together.
        gpus: GPUs of all these together, whatever the shares.
        waiting: Requests that wait.
    """

    leases: int = 0
    gpus: int = 0
    waiting: int = 0


def check_limits(limits: Limits, counts: dict[str, tuple[int, int]], gpus: int) -> None:
    """Refuse a request for `gpus` GPUs of a user who has `counts`: by state, (entries, GPUs).

    Raises:
        Refusal: It is over a limit.
    """
    leases = sum(entries for entries, _ in counts.values())
    taken = sum(found for _, found in counts.values())
    waiting = counts.get(WAITING, (0, 0))[0]
    if limits.leases and leases + 1 > limits.leases:
        raise _refused(f"{limits.leases} leases, waiting requests included, and you have {leases}")
    if limits.gpus and taken + gpus > limits.gpus:
        raise _refused(f"{limits.gpus} GPUs, you have or wait for {taken}, and this request is for {gpus}")
    if limits.waiting and waiting + 1 > limits.waiting:
        raise _refused(f"{limits.waiting} waiting requests, and you have {waiting}")


def _refused(what: str) -> Refusal:
    return Refusal(
        refusal_codes.OVER_LIMIT,
        f"one user of this pool may have {what}",
        "end something of yours first; `bitfusion smi` shows who holds what",
    )
