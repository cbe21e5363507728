"""When the pool counts as away, and when as back: not at the first probe that says otherwise. Pure."""

from __future__ import annotations

from dataclasses import dataclass


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
