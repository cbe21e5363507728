"""The text and HTML that a waiting cell shows: queue position, who holds the GPUs, elapsed time. Pure.

JupyterLab drops its displays at a restart or a reload of the page, and nobody can clear them then: what was
shown last stays, so it is worded to stay true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bitfusion_client.clock_time import clock_time

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition


class WaitingNotice(NamedTuple):
    """The facts that are shown.

    Attributes:
        request: The request as text, "2 GPUs × 50 %".
        seconds: How long the cell has waited.
        asked_at: When the wait began, in seconds since the epoch.
        granted: True in the short time between getting the GPUs and the kernel's answer.
        queue_position: Counts from 1; None while the client has not reported one.
        queue_length: How many wait, this one included.
        held_by: Who holds the GPUs, as the client describes them.
        before: Who waits before this cell, likewise.
        why: Why it waits, where the client says more.
        outage: That the pool is out of reach, while it is.
        in_pod: Whether it waits for the budget of its pod, and the pool has not been asked.
        unattended: Whether nobody watches the cell, but perhaps a tool that limits its time.
    """

    request: str
    seconds: float
    asked_at: float
    granted: bool = False
    queue_position: int | None = None
    queue_length: int | None = None
    held_by: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    why: str = ""
    outage: str = ""
    in_pod: bool = False
    unattended: bool = False


def notice_of(
    acquisition: Acquisition, seconds: float, asked_at: float, *, unattended: bool = False
) -> WaitingNotice:
    """What there is to show of an attempt to get GPUs, for a cell that waits since `asked_at`."""
    outage = acquisition.outage
    return WaitingNotice(
        acquisition.asked_for,
        seconds,
        asked_at,
        acquisition.granted,
        acquisition.queue_position,
        acquisition.queue_length,
        acquisition.held_by,
        acquisition.before,
        acquisition.why,
        outage.headline(asked_at + seconds) if outage is not None and outage.lasts else "",
        acquisition.waits_for_pod,
        unattended,
    )


def render(notice: WaitingNotice) -> dict[str, str]:
    """The display's data: a MIME bundle with `text/plain` and `text/html`."""
    headline = _headline(notice)
    details = [] if notice.granted else _details(notice)
    from html import escape  # loads a table of 2,000 entities: not before it is needed

    plain = [headline, *details]
    rows = "".join(f"<div{_indent(line)}>{escape(line.strip())}</div>" for line in details)
    if not notice.granted:
        if notice.in_pod:
            plain.append(_HOW_TO_GO_ON)
            rows += f"<div>{_HOW_TO_GO_ON}</div>"
        plain.append(_HOW_TO_STOP.format(button=""))
        rows += f"<div>{_HOW_TO_STOP.format(button=' (■)')}</div>"  # terminals have no such button
        if notice.unattended:
            plain.append(LIMIT_OF_CELLS)
            rows += f"<div>{escape(LIMIT_OF_CELLS)}</div>"
    html = (
        '<div role="status" style="display:inline-block;border-left:4px solid #76b900;padding:6px 14px;'
        'font-family:var(--jp-ui-font-family,sans-serif);font-size:13px;line-height:1.6">'
        f"<div><b>{escape(headline)}</b></div>"
        f'<div style="opacity:.8">{rows}</div></div>'
    )
    return {"text/plain": "\n".join(plain), "text/html": html}


_HOW_TO_GO_ON = "It runs as soon as such a kernel is shut down (in JupyterLab: Kernel, Shut Down Kernel)."
_HOW_TO_STOP = "To stop waiting, interrupt the kernel{button}. The notebook is not lost."


LIMIT_OF_CELLS = (
    "A time limit for cells counts this wait. "
    "With BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts it instead."
)
"""For runs that nobody watches: their tools may have such a limit."""


def _headline(notice: WaitingNotice) -> str:
    elapsed = elapsed_text(notice.seconds)
    if notice.granted:
        return f"Got {notice.request} – starting the kernel · {elapsed}"
    since = clock_time(notice.asked_at, notice.asked_at + notice.seconds)
    return f"Asked for {notice.request} at {since} · waited {elapsed}"


def _details(notice: WaitingNotice) -> list[str]:
    if notice.in_pod:
        lines = ["Notebooks of this pod hold its budget"]
        if notice.queue_position is not None:
            lines[0] += f" · position {notice.queue_position} of {notice.queue_length} among those that wait"
    elif notice.queue_position is None:
        lines = ["The pool has not reported a position"]
    else:
        lines = [f"Position {notice.queue_position} of {notice.queue_length} in the queue"]
    for title, names in (("Held by:", notice.held_by), ("Before you in the queue:", notice.before)):
        if names:
            lines += [title, *(f"  {name}" for name in names)]
    if notice.why:
        lines.append(f"Why: {notice.why}")
    if notice.outage:
        lines.append(notice.outage)
    return lines


def _indent(line: str) -> str:
    return ' style="padding-left:1.2em"' if line.startswith("  ") else ""


def elapsed_text(seconds: float) -> str:
    """`7 s`, `2 min 05 s`, `1 h 02 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
