"""Who has how much of the pool, from what `bitfusion-pool status --json` says of it. Pure.

Holders and pods are matched by the token's name, ``ISSUER/NAMESPACE``, which nobody else can have, and by the
notebook that the client says it is, within that namespace only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bitfusion_client.clock_time import elapsed_text
from bitfusion_client.kubernetes.sizes import UNITS_PER_GPU

CUT = "…"  # where the pool has cut a long name


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has something at the pool; the names are those of the JSON.

    Attributes:
        user: A user of the pool's own machine, or the name of a token.
        of_token: Whether it is that of a token.
        namespace: That of the token; empty where it has none.
        notebook: The notebook, or a pod that belongs to none, in this namespace; empty where the client says
            none there. A name that ends with `CUT` is the beginning of one.
        claims: What the client says where its namespace is not the token's; else empty.
    """

    user: str
    of_token: bool
    namespace: str
    notebook: str
    claims: str

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.namespace}/{self.notebook}" if self.notebook else self.namespace


@dataclass(frozen=True, slots=True)
class AtThePool:
    """What somebody has at the pool.

    Attributes:
        held: Units of its leases.
        leases: How many leases.
        waiting: Requests that wait there.
        idle: Those of the units whose kernel says that it is idle.
        seconds: Since when its oldest lease was granted; None: it has none.
        idle_seconds: Of its kernels, how long the one is idle that is so the longest; None: none says so.
    """

    held: int = 0
    leases: int = 0
    waiting: int = 0
    idle: int = 0
    seconds: float | None = None
    idle_seconds: float | None = None

    def plus(self, other: AtThePool) -> AtThePool:
        """Both together."""
        return AtThePool(
            self.held + other.held,
            self.leases + other.leases,
            self.waiting + other.waiting,
            self.idle + other.idle,
            _longer(self.seconds, other.seconds),
            _longer(self.idle_seconds, other.idle_seconds),
        )

    def idle_text(self) -> str:
        """For people: ``12 min 05 s``, ``50 of 100, 12 min 05 s`` where not all is idle, or nothing."""
        if self.idle_seconds is None:
            return ""
        part = "" if self.idle == self.held else f"{self.idle} of {self.held}, "
        return f"{part}{elapsed_text(self.idle_seconds)}"


NOTHING = AtThePool()


def holders(status: Mapping[str, Any]) -> dict[Holder, AtThePool]:
    """What everybody has, by what the pool says of itself."""
    found: dict[Holder, AtThePool] = {}
    have = [(entry, _of_lease(entry)) for entry in status["leases"]]
    have += [(entry, AtThePool(waiting=1)) for entry in status["waiting"]]
    for entry, has in have:
        holder = Holder(*(entry[name] for name in Holder.__match_args__))
        found[holder] = found.get(holder, NOTHING).plus(has)
    return found


def _of_lease(entry: Mapping[str, Any]) -> AtThePool:
    units = _units(entry["gpus_held"])
    idle_s = (entry.get("kernel") or {}).get("idle_seconds")
    return AtThePool(units, 1, 0, 0 if idle_s is None else units, entry["seconds"], idle_s)


def _longer(one: float | None, other: float | None) -> float | None:
    return max((seconds for seconds in (one, other) if seconds is not None), default=None)


def _units(gpus: float) -> int:
    """A lease in units, parts rounded up: memory is leased in whole MiB, rounded down."""
    return math.ceil(round(gpus * UNITS_PER_GPU, 6))
