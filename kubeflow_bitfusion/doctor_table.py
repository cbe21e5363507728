"""The doctor's findings as a table for a terminal of any width, and as JSON. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence

from bitfusion_client.one_line import one_line
from bitfusion_client.text_table import display_width, pad
from bitfusion_cluster.doctor.finding import FAIL, OK, WARN, Finding

COLORS = {OK: "32", WARN: "33", FAIL: "31;1"}
NARROW = 64
"""Columns below which what was seen stands under its check, not beside it."""
LEAST = 24
MOST = 120
TITLES = ("state", "check", "what was seen, and what to do")
ARROW = "→ "


def table(findings: Sequence[Finding], width: int, colored: bool) -> str:
    """The rows below each other. What to do stands under what was seen, after an arrow."""
    width = max(LEAST, min(width, MOST))
    first = max(map(len, COLORS))
    second = max((display_width(each.check) for each in findings), default=0)
    beside = width >= NARROW and first + second + 34 <= width
    indent = first + second + 4 if beside else 2
    lines = []
    if beside:
        lines.append(f"{TITLES[0]:{first}} {pad(TITLES[1], second)}  {TITLES[2]}".rstrip())
        lines.append("─" * width)
    for finding in findings:
        state = (
            f"\x1b[{COLORS[finding.state]}m{finding.state:{first}}\x1b[0m"
            if colored
            else f"{finding.state:{first}}"
        )
        seen = _wrapped(finding.seen, width - indent, "")
        todo = _wrapped(finding.todo, width - indent, ARROW) if finding.todo else []
        head = f"{state}  {pad(finding.check, second)}" if beside else f"{state}  {finding.check}"
        if beside:
            lines.append(f"{head}  {seen[0]}")
            seen = seen[1:]
        else:
            lines.append(head)
        lines += [" " * indent + line for line in (*seen, *todo)]
    return "\n".join(lines) + "\n"


def conclusion(findings: Sequence[Finding], namespace: str) -> str:
    """The last line: how many of each, and where was looked."""
    count = {state: sum(each.state == state for each in findings) for state in COLORS}
    words = []
    for state, word in ((FAIL, "failed"), (WARN, "to look at")):
        if count[state]:
            words.append(f"{count[state]} {word}")
    said = ", ".join(words) or "Nothing to do"
    return f"{said}; {count[OK]} of {len(findings)} are well (namespace {namespace})."


def as_json(findings: Sequence[Finding], namespace: str) -> str:
    """For machines: the same, one object."""
    rows = [each._asdict() for each in findings]
    failed = any(each.state == FAIL for each in findings)
    data = {"ok": not failed, "namespace": namespace, "findings": rows}
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def _wrapped(text: str, width: int, start: str) -> list[str]:
    # URLs and image names are longer than a narrow terminal: they are cut nowhere but where they must be
    return textwrap.wrap(
        one_line(text, len(text)),
        width,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_on_hyphens=False,
    ) or [start]
