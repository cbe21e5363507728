"""How many units the pool has, and when it counts as away: one answer alone changes neither. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from bitfusion_client.command.client_reports import ServerStatus
from bitfusion_client.kubernetes.sizes import UNITS_PER_GPU

LARGEST_UNITS = 100_000
"""1,000 GPUs. The kubelet reads a message of 4 MiB at most (gRPC's default), and these are 2.5 MB."""


def pool_units(servers: Sequence[ServerStatus], overcommit: float = 1.0) -> int:
    """The units of all GPUs that the servers have, free or not; never more than `LARGEST_UNITS`.

    Args:
        servers: As ``bitfusion list_gpus`` has told them.
        overcommit: How much the units may exceed the pool: 1.5 offers 150 units for each GPU.
    """
    gpus = sum(len(server.gpus) for server in servers)
    # as it was written: 1.1 × 100 is 110 and not 110.00000000000001
    return min(LARGEST_UNITS, int(gpus * UNITS_PER_GPU * Fraction(repr(overcommit))))


class SteadySize:
    """The largest of the last answers; `saw` is called with each.

    A server that restarts is missing in the list for a moment. So a pool that has grown is larger at once,
    and one that has shrunk is smaller when so many answers in a row say so.
    """

    def __init__(self, smaller_after: int = 3) -> None:
        self._last: deque[int] = deque(maxlen=smaller_after)

    @property
    def units(self) -> int:
        """The size now; 0 before the first answer."""
        return max(self._last, default=0)

    def saw(self, units: int, offered: bool = True) -> int:
        """Take one answer into account; the size now.

        Args:
            units: What the answer says.
            offered: Whether new pods get units. If not, a smaller pool takes nothing from anybody.
        """
        if not offered:
            self._last.clear()
        self._last.append(units)
        return self.units


@dataclass(slots=True)
class PoolHealth:
    """What probes have shown so far; `saw` is called with each.

    The first one decides at once. After that `down_after` failures in a row make the pool away, and
    `up_after` answers in a row make it back: a pool that is busy for a moment takes no units from anybody.
    """

    down_after: int = 3
    up_after: int = 2
    healthy: bool = False
    _opposed: int = 0  # probes in a row that say the opposite of `healthy`
    _asked: bool = False

    def saw(self, answered: bool) -> bool:
        """Take one probe into account; whether the pool is healthy now."""
        if not self._asked:
            self._asked, self.healthy = True, answered
        elif answered == self.healthy:
            self._opposed = 0
        else:
            self._opposed += 1
            if self._opposed >= (self.up_after if answered else self.down_after):
                self.healthy, self._opposed = answered, 0
        return self.healthy
