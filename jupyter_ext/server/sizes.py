"""The sizes that a page offers, each with what is free of it now. Pure.

They are the admin's, else made of what the pool has. In a pod none is possible
that is larger than its budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bitfusion_client.errors import BitfusionError
from bitfusion_client.gpu_pods.budget import fits
from bitfusion_client.request.gpu_request import GpuRequest
from jupyter_ext.server.kernel_words import size_words

Json = dict[str, Any]

MOST_OFFERED_GPUS = 8
"""Of one size that is made from the pool; more are asked for by number."""

MOST_COUNTED = 100
"""Requests that are counted as free."""

FREE = "free now"
NEXT = "would wait: you are next"
OVER_BUDGET = "more than this pod's budget"
OVER_SERVERS = "more than any server has"
BUDGET_HELD = "would wait: other notebooks of this pod hold its budget"

_SHARES = ((1.0, "1 GPU"), (0.5, "½ GPU"), (0.25, "¼ GPU"))


@dataclass(frozen=True, slots=True)
class OfferedSize:
    """One entry of a list of sizes."""

    label: str
    request: GpuRequest


@dataclass(frozen=True, slots=True)
class PodBudget:
    """What the kernels of this pod may hold together.

    Attributes:
        request: The budget.
        units: The same in percent × GPUs; 0 if not known.
        held: What this server's kernels hold of it.
    """

    request: GpuRequest
    units: int = 0
    held: tuple[GpuRequest, ...] = field(default=())


def sizes_json(offered: Sequence[OfferedSize] | None, pool: Json, budget: PodBudget | None) -> list[Json]:
    """The sizes as a page gets them, in the order in which it shows them.

    Args:
        offered: The admin's list; None where there is none.
        pool: As `pool_report` has it.
        budget: Of the pod; None outside of pods.
    """
    if offered is None:
        offered = _of_budget(budget, _of_pool(pool))
    return [_size_json(size, pool, budget) for size in offered]


def held_request(state: Json) -> GpuRequest | None:
    """What a kernel holds, from its published state; None: nothing, or it cannot be told."""
    if state.get("granted_at") is None:
        return None
    request = state.get("request")
    if not isinstance(request, dict):
        return None
    try:
        return GpuRequest.from_json(
            {name: request[name] for name in ("gpus", "partial", "memory_mib") if name in request}
        )
    except (BitfusionError, TypeError):
        return None


def free_now(request: GpuRequest, pool: Json) -> int | None:
    """How many such requests the servers could serve at once beside what is held; None: not known."""
    return _count(request, pool, "free_mib")


def _count(request: GpuRequest, pool: Json, memory: str) -> int | None:
    servers = [server["gpus"] for server in pool["servers"] if server["gpus"]]
    if not servers or any(not gpu["total_mib"] for gpus in servers for gpu in gpus):
        return None  # GPUs of a cluster, of which neither memory nor all holders need be seen
    return min(MOST_COUNTED, sum(_on_server(request, gpus, memory) for gpus in servers))


def _on_server(request: GpuRequest, gpus: Iterable[Json], memory: str) -> int:
    """How many fit on one server: each takes as many different GPUs as it asks for."""
    copies = [
        MOST_COUNTED if not need else min(MOST_COUNTED, gpu[memory] // need)
        for gpu in gpus
        for need in (request.memory_per_gpu(gpu["total_mib"]),)
    ]
    count = 0
    while count < MOST_COUNTED and sum(min(each, count + 1) for each in copies) >= (count + 1) * request.gpus:
        count += 1
    return count


def _size_json(size: OfferedSize, pool: Json, budget: PodBudget | None) -> Json:
    free = free_now(size.request, pool)
    note, possible = _note(size.request, pool, budget, free)
    return {
        "label": size.label,
        "gpus": size.request.gpus,
        "partial": size.request.partial,
        "memory_mib": size.request.memory_mib,
        "words": size_words(size.request),
        "free_now": free,
        "note": note,
        "possible": possible,
    }


def _note(request: GpuRequest, pool: Json, budget: PodBudget | None, free: int | None) -> tuple[str, bool]:
    if budget is not None and not fits(budget.request, (), request, budget.units):
        return OVER_BUDGET, False
    if _count(request, pool, "total_mib") == 0:
        return OVER_SERVERS, False
    if budget is not None and not fits(budget.request, budget.held, request, budget.units):
        return BUDGET_HELD, True
    if free is None:
        return "", True
    # nobody overtakes: who waits for more than is free is served before
    waiting = len(pool["waiting"])
    if waiting:
        return f"would wait: {waiting} before you", True
    return (FREE if free else NEXT), True


def _of_pool(pool: Json) -> list[OfferedSize]:
    """A whole, a half and a quarter of a GPU, and two, four and so on, as far as a server has them."""
    servers = [server["gpus"] for server in pool["servers"]]
    known = all(gpu["total_mib"] for gpus in servers for gpu in gpus)
    shares = [OfferedSize(label, _share(share)) for share, label in _SHARES if known or share == 1.0]
    most = min(MOST_OFFERED_GPUS, max((len(gpus) for gpus in servers), default=1))
    several = []
    gpus = 2
    while gpus <= most:
        several.append(OfferedSize(f"{gpus} GPUs", GpuRequest(gpus)))
        gpus *= 2
    return [*reversed(several), *shares]


def _of_budget(budget: PodBudget | None, made: list[OfferedSize]) -> list[OfferedSize]:
    """Those within the budget, with the budget itself in front, which is what the notebook was made with."""
    if budget is None:
        return made
    whole = budget.request
    own = OfferedSize(whole.describe(), GpuRequest(whole.gpus, whole.partial, whole.memory_mib))
    within = [size for size in made if fits(whole, (), size.request, budget.units)]
    return [own, *(size for size in within if not size.request.same_as(own.request))]


def _share(share: float) -> GpuRequest:
    return GpuRequest(1, None if share == 1.0 else share)
