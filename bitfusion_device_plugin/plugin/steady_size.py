"""How large the pool is, where one answer alone takes no units away. Pure."""

from __future__ import annotations

from collections import deque


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
