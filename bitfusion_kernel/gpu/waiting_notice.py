"""The text and HTML that a waiting cell shows: queue position, who holds the GPUs, elapsed time. Pure.

JupyterLab drops its displays at a restart or a reload of the page, and nobody can change or clear them then:
what was shown last stays and is saved, so it says as of when it is true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitfusion_client.clock_time import clock_time, elapsed_text
from bitfusion_kernel.gpu.notice_box import boxed

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition


def render(
    acquisition: Acquisition, seconds: float, asked_at: float, now: float, *, unattended: bool = False
) -> dict[str, str]:
    """The display's data: a MIME bundle with `text/plain` and `text/html`.

    Args:
        acquisition: The attempt to get GPUs.
        seconds: How long the cell has waited.
        asked_at: When the wait began, in seconds since the epoch.
        now: The same clock now: a machine that slept has counted less as `seconds`.
        unattended: Whether nobody watches the cell, but perhaps a tool that limits its time.
    """
    as_of = f"as of {clock_time(now, now)}"
    if acquisition.granted:  # in the short time until the kernel answers
        headline = f"Got {acquisition.asked_for} – starting the kernel · {elapsed_text(seconds)} · {as_of}"
        return boxed(headline, [])
    from bitfusion_kernel.gpu.acquisition import BESIDE_LIMIT

    asked = f"Asked for {acquisition.asked_for} at {clock_time(asked_at, now)}"
    headline = f"{asked} · waited {elapsed_text(seconds)} · {as_of}"
    plain = _details(acquisition, now)
    if acquisition.kept:
        plain.append(f"This kernel keeps {acquisition.kept}, and tries for {BESIDE_LIMIT:.0f} s at most.")
    if acquisition.waits_for_pod:
        plain.append(_HOW_TO_GO_ON)
    html = [*plain, _HOW_TO_STOP.format(button=" (■)")]  # terminals have no such button
    plain.append(_HOW_TO_STOP.format(button=""))
    if unattended:
        plain.append(LIMIT_OF_CELLS)
        html.append(LIMIT_OF_CELLS)
    return boxed(headline, plain, html)


_HOW_TO_GO_ON = "It runs as soon as such a kernel is shut down (in JupyterLab: Kernel, Shut Down Kernel)."
_HOW_TO_STOP = "To stop waiting, interrupt the kernel{button}. The notebook is not lost."


LIMIT_OF_CELLS = (
    "A time limit for cells counts this wait. "
    "With BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts it instead."
)
"""For runs that nobody watches: their tools may have such a limit."""


def _details(acquisition: Acquisition, now: float) -> list[str]:
    queue, outage = acquisition.queue, acquisition.outage
    standing = "" if queue is None else queue.standing
    if acquisition.waits_for_pod:
        among = standing and f" · {standing} among those that wait"
        lines = [f"Notebooks of this pod hold its budget{among}"]
    elif standing:
        lines = [f"{standing.capitalize()} in the queue"]
    else:
        lines = [] if queue is not None and queue.why else ["No position in the queue has been reported yet"]
    if queue is not None:
        for title, names in (("Held by:", queue.held_by), ("Before you in the queue:", queue.before)):
            if names:
                lines += [title, *(f"  {name}" for name in names)]
        if queue.why:
            lines.append(f"Why: {queue.why}")
    if outage is not None and outage.lasts:
        lines.append(outage.headline(now))
    return lines
