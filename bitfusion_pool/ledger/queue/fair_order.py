"""The order of a fair queue: a user's second request waits behind the first ones of others. Pure.

Each request is due at a time that is fixed when it comes: at once, but half an hour later for each lease and
each request that its user has already. Who is due first is served first. So whoever has nothing goes before
whoever has something, and one user's many requests keep nobody's first waiting; and yet nobody waits for
ever, because whoever comes after that half an hour goes behind.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

LATER_S = 1800.0  # so long a request waits unless its user says otherwise: see `waiting.DEFAULT_TIMEOUT_S`


@dataclass(frozen=True, slots=True)
class Present:
    """A lease or a request that is there when another comes.

    Attributes:
        owner: The uid whose it is.
        came: When it came, in seconds since the epoch.
        due: When it is due, or was.
    """

    owner: int
    came: float
    due: float


def due_time(present: Iterable[Present], owner: int, now: float) -> float:
    """When a request that comes now is due; those that are due at the same time keep the order they came in.

    Args:
        present: The leases and the requests that there are.
        owner: The uid of the request's user.
        now: In seconds since the epoch.
    """
    comes, own_due, has = now, 0.0, 0
    for one in present:
        comes = max(comes, one.came)  # the machine's time may have been set back
        if one.owner == owner:
            has += 1
            own_due = max(own_due, one.due)
    # a user's own requests keep their order, also where leases that counted for the earlier ones have ended
    return max(comes + LATER_S * has, own_due)
