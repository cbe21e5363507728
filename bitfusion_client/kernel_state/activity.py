"""What the kernel under a `bitfusion run` does now, as that command is told it in a small file. Pure.

Whoever starts the command names the file in `FILE_VARIABLE` and replaces it with every change; the
stand-in reads it while it waits or holds, and passes it on to the pool, which shows who computes and who is
idle. Another client passes over the variable: what its kernels do is not known.

The file has one JSON object: ``{"version": 1, "state": "idle", "since": 1767225600.0, "idle_since":
1767225600.0, "notebook": "digits.ipynb"}``. Times are in seconds since the epoch; `idle_since` and `notebook`
may be null; fields that nobody knows are passed over.
"""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass
from bitfusion_client.kernel_state.states import IDLE, STATES, VERSION
from bitfusion_client.one_line import one_line

if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 65536  # of the file
_LONGEST_NOTEBOOK = 60  # characters, as a lease's label
_END_OF_TIME = 1e11  # in seconds since the epoch, some 3,000 years from now


@dataclass(frozen=True, slots=True)
class KernelActivity:
    """What a kernel does.

    Attributes:
        state: One of `STATES`; empty: not known.
        since: When that began, in seconds since the epoch.
        idle_since: When it last computed, by the same clock; None unless it is idle.
        notebook: Which document it is of, for people; one printable line, may be empty.
    """

    state: str
    since: float = 0.0
    idle_since: float | None = None
    notebook: str = ""

    def text(self, now: float) -> str:
        """For people: ``idle 12 min 05 s``."""
        from bitfusion_client.clock_time import elapsed_text

        begin = self.since if self.idle_since is None else self.idle_since
        return f"{self.state} {elapsed_text(now - begin)}"


UNKNOWN = KernelActivity("")


def activity_from_json(value: object, now: float = _END_OF_TIME) -> KernelActivity:
    """What the JSON object says; UNKNOWN where it is something else or of another version. Never raises.

    A time after `now` counts as now. An idle kernel that does not say since when is so since its state began.
    """
    if not isinstance(value, dict) or value.get("version", VERSION) != VERSION:
        return UNKNOWN
    state, since, idle_since = value.get("state"), _time(value.get("since"), now), value.get("idle_since")
    notebook = value.get("notebook")
    if state not in STATES or since is None or not (notebook is None or isinstance(notebook, str)):
        return UNKNOWN
    idle = _time(since if idle_since is None else idle_since, now) if state == IDLE else None
    if state == IDLE and idle is None:
        return UNKNOWN
    # cut first: what comes from anywhere may be long
    name = one_line((notebook or "")[: 2 * _LONGEST_NOTEBOOK], _LONGEST_NOTEBOOK)
    return KernelActivity(state, since, idle, name)


def activity_to_json(activity: KernelActivity) -> dict[str, Any]:
    """The opposite, without the version, which only the file has."""
    return {name: getattr(activity, name) for name in KernelActivity.__match_args__}


def _time(value: object, now: float) -> float | None:
    """Seconds since the epoch, no later than `now`; None: it is no time."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _END_OF_TIME:
        return None
    return min(float(value), now)
