"""A pool on the network that is out of reach while a kernel runs on its GPUs, and what is shown of it. Pure.

The kernel goes on as it is; `bitfusion run` tries to reach the pool all the time, and ends its program before
the pool gives the GPUs to others. A person who reads it in time can still save results. What is shown stays
in the notebook, so it gives times of day and is worded to stay true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bitfusion_client.clock_time import clock_time
from bitfusion_kernel.gpu.notice_box import boxed

if TYPE_CHECKING:
    from bitfusion_client.command.client_lines import BackInReach, OutOfReach


class PoolOutage(NamedTuple):
    """One time out of reach, with times in seconds since the epoch.

    Attributes:
        pool: ``host:port``; the name of a GPU pod, which has no port.
        reason: What `bitfusion run` has noticed.
        since: When it said so first.
        ends_at: When the kernel is ended unless the pool is back; None if the client did not say.
        back_at: When it was back; None while it is out of reach.
    """

    pool: str
    reason: str
    since: float
    ends_at: float | None = None
    back_at: float | None = None

    @property
    def lasts(self) -> bool:
        """Whether the pool is out of reach still."""
        return self.back_at is None

    @property
    def what(self) -> str:
        """What is out of reach."""
        return "GPU pool" if ":" in self.pool else "GPU pod"

    def headline(self, now: float) -> str:
        """One sentence, for the display and for `%bitfusion`."""
        since = clock_time(self.since, now, seconds=True)
        if self.back_at is None:
            return f"The {self.what} {self.pool} is out of reach since {since}: {self.reason}"
        back = clock_time(self.back_at, now, seconds=True)
        return f"The {self.what} {self.pool} was out of reach from {since} to {back}: nothing was lost"

    def end(self, now: float) -> str:
        """When the kernel is ended; empty if it is not."""
        if self.back_at is not None or self.ends_at is None:
            return ""
        return (
            f"This kernel is ended at {clock_time(self.ends_at, now, seconds=True)} "
            f"unless the {self.what.partition(' ')[2]} is back"
        )


def noticed(line: OutOfReach, before: PoolOutage | None, now: float) -> PoolOutage:
    """The outage after a line of `bitfusion run` that came at `now`; `before`: the one told of last."""
    ends_at = None if line.ends_in_s is None else now + line.ends_in_s
    since = before.since if before is not None and before.lasts and before.pool == line.pool else now
    return PoolOutage(line.pool, line.reason, since, ends_at)


def over(line: BackInReach, before: PoolOutage | None, now: float) -> PoolOutage:
    """The outage once the pool is back."""
    since = now - line.seconds if before is None else before.since
    return PoolOutage(line.pool, "" if before is None else before.reason, since, back_at=now)


def render(outage: PoolOutage, now: float) -> dict[str, str]:
    """The display in a cell: a MIME bundle with `text/plain` and `text/html`."""
    details = []
    if outage.lasts:
        end = outage.end(now)
        details = ["Cells go on running.", *([f"{end}. {SAVE}"] if end else ())]
    return boxed(outage.headline(now), details, colour="#d9822b" if outage.lasts else "#76b900")


SAVE = "Save what you need from it to a file before."
