"""The text and HTML that a waiting cell shows: queue position, who is ahead, elapsed time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bitfusion_kernel.gpu.acquisition import Acquisition


class WaitingNotice(NamedTuple):
    """The facts that are shown.

    Attributes:
        request: The request as text, "2 GPUs × 50 %".
        seconds: How long the cell has waited.
        granted: True in the short time between getting the GPUs and the kernel's answer.
        queue_position: Counts from 1; None while the client has not reported one.
        queue_length: How many wait, this one included.
        ahead: Who is ahead in the queue, as the client describes them.
    """

    request: str
    seconds: float
    granted: bool = False
    queue_position: int | None = None
    queue_length: int | None = None
    ahead: tuple[str, ...] = ()


def notice_of(acquisition: Acquisition, seconds: float) -> WaitingNotice:
    """What there is to show of an attempt to get GPUs, for a cell that has waited `seconds`."""
    return WaitingNotice(
        acquisition.request.describe(),
        seconds,
        acquisition.granted,
        acquisition.queue_position,
        acquisition.queue_length,
        acquisition.ahead,
    )


def render(notice: WaitingNotice) -> dict[str, str]:
    """The display's data: a MIME bundle with `text/plain` and `text/html`."""
    headline, details = _lines(notice)
    elapsed = elapsed_text(notice.seconds)
    from html import escape  # loads a table of 2,000 entities: not before it is needed

    plain = "\n".join([f"{headline} · {elapsed}", *details])
    rows = "".join(f"<div>{escape(line)}</div>" for line in details)
    html = (
        '<div role="status" style="display:inline-block;border-left:4px solid #76b900;padding:6px 14px;'
        'font-family:var(--jp-ui-font-family,sans-serif);font-size:13px;line-height:1.6">'
        f"<div><b>{escape(headline)}</b> · {elapsed}</div>"
        f'<div style="opacity:.8">{rows}</div></div>'
    )
    return {"text/plain": plain, "text/html": html}


def _lines(notice: WaitingNotice) -> tuple[str, list[str]]:
    if notice.granted:
        return f"Got {notice.request} – starting the kernel", []
    if notice.queue_position is None:
        details = ["The pool has not reported a position"]
    else:
        details = [f"Position {notice.queue_position} of {notice.queue_length} in the queue"]
    if notice.ahead:
        details.append("Ahead: " + "; ".join(notice.ahead))
    details.append("To stop waiting, interrupt the kernel (■). The notebook is not lost.")
    return f"Waiting for {notice.request}", details


def elapsed_text(seconds: float) -> str:
    """`7 s`, `2 min 05 s`, `1 h 02 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
