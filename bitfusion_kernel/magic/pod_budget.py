"""What `%bitfusion` and `%bitfusion pool` show of the budget of the pod. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from bitfusion_client.clock_time import clock_time

if TYPE_CHECKING:
    from bitfusion_kernel.pod.account import Standing
    from bitfusion_kernel.pod.turns import Entry

_HEAD = ("Notebook of this pod", "Holds", "Since")


def rows(standing: Standing, clock: float) -> list[tuple[str, str]]:
    """The rows of `%bitfusion`; `clock` in seconds since the epoch."""
    return [
        ("Pod", standing.pod.files.describe()),
        ("Budget", standing.pod.budget.request.describe()),
        ("Left", standing.describe_left()),
        *(("Held by", entry.describe(clock)) for entry in standing.holders),
        *(("Waits", entry.describe(clock)) for entry in standing.waiting),
    ]


def below(bundle: dict[str, str], standing: Standing, clock: float) -> dict[str, str]:
    """The MIME bundle of the pool with a table of the pod's budget below it."""
    title = f"Budget of this pod: {standing.pod.budget.request.describe()} · left: {standing.describe_left()}"
    lines = [_cells(entry, clock) for entry in standing.entries]
    plain = [bundle["text/plain"], "", title]
    if lines:
        plain += [f"{_HEAD[0]:<32} {_HEAD[1]:<24} {_HEAD[2]}"]
        plain += [f"{name:<32} {size:<24} {since}" for name, size, since in lines]
    found = {"text/plain": "\n".join(plain)}
    if "text/html" in bundle:
        head = "".join(f"<th>{name}</th>" for name in _HEAD)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if lines else ""
        found["text/html"] = f"{bundle['text/html']}<div><b>{escape(title)}</b></div>{table}"
    return found


def _cells(entry: Entry, clock: float) -> tuple[str, str, str]:
    size = entry.size() if entry.holds else f"waits for {entry.size()}"
    return entry.notebook, size, clock_time(entry.since, clock)
