"""The display a waiting cell shows: place, who is ahead, elapsed time, how to cancel. Pure.

One display, updated in place and cleared before the cell's own output, so nothing of it is saved.
"""

from __future__ import annotations

SHOW_AFTER = 0.3
"""Seconds before a wait is shown; shorter waits would only flicker."""

SHOW_SILENT_WAIT_AFTER = 1.0
"""The same for a client that has not said that it waits: it may only be slow to answer."""

UPDATE_EVERY = 1.0
"""Seconds between updates, for the elapsed time."""


def elapsed_text(seconds: float) -> str:
    """`7 s`, `2 min 05 s`, `1 h 02 min`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def render(
    request_text: str,
    seconds: float,
    place: int | None,
    of: int | None,
    ahead: tuple[str, ...],
    granted: bool,
) -> dict[str, str]:
    """The display's data, a MIME bundle with `text/plain` and `text/html`.

    `place` counts from 1 and is None while the client has not told one; `granted` is the short time
    between getting the GPU and the kernel's answer.
    """
    if granted:
        headline = f"Got {request_text} – starting the kernel"
        details: list[str] = []
    else:
        headline = f"Waiting for {request_text}"
        details = [
            f"Place {place} of {of} in the queue" if place is not None else "The pool has not told a place"
        ]
        if ahead:
            details.append("Ahead: " + "; ".join(ahead))
        details.append("To stop waiting, interrupt the kernel (■). The notebook is not lost.")
    time_text = elapsed_text(seconds)
    from html import escape  # loads a table of 2,000 entities: not before it is needed

    plain = "\n".join([f"{headline} · {time_text}", *details])
    rows = "".join(f"<div>{escape(line)}</div>" for line in details)
    html = (
        '<div role="status" style="display:inline-block;border-left:4px solid #76b900;padding:6px 14px;'
        'font-family:var(--jp-ui-font-family,sans-serif);font-size:13px;line-height:1.6">'
        f"<div><b>{escape(headline)}</b> · {time_text}</div>"
        f'<div style="opacity:.8">{rows}</div></div>'
    )
    return {"text/plain": plain, "text/html": html}
