"""A terminal's text as an SVG picture, so that what the guides show is what the test cluster printed."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Sequence

COLUMNS = 112
LETTER, LINE = 8.4, 20  # pixels at this font size
SIZE = 14
COLOURS = {"$": "#0b5394", "!": "#a61c00", "#": "#5f6368", " ": "#202124"}
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


def terminal(blocks: Sequence[str], caption: str) -> str:
    """The picture; `caption` says in one line where the text is from.

    Lines that begin with ``$`` are commands, with ``!`` errors, with ``#`` remarks; the marks of the latter
    two are not shown.
    """
    rows: list[tuple[str, str]] = []
    for line in "\n".join(blocks).splitlines():
        mark = line[:1] if line[:1] in "$!#" else " "
        text = line[2:] if mark in "!#" else line
        columns = [gap.end() for gap in re.finditer(r"(?<=\S) {3,}", text)]  # the last one is what wraps
        indent = " " * max(columns or [2 if mark == "$" else len(text) - len(text.lstrip())])
        wrapped = textwrap.wrap(text, COLUMNS, subsequent_indent=indent, drop_whitespace=True) or [""]
        rows += [(mark, part) for part in wrapped]
    width = int(COLUMNS * LETTER) + 40
    told = textwrap.wrap(caption, int(COLUMNS * 1.25))
    height = (len(rows) + len(told)) * LINE + 56
    shown = [
        f'<text x="20" y="{32 + number * LINE}" fill="{COLOURS[mark]}" xml:space="preserve">'
        f"{html.escape(text, quote=False)}</text>"
        for number, (mark, text) in enumerate(rows)
        if text
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{FONT}" font-size="{SIZE}">',
            f'<rect width="{width}" height="{height}" rx="8" fill="#f8f9fa" stroke="#dadce0"/>',
            *shown,
            *(
                f'<text x="20" y="{height - 18 - LINE * left}" fill="#5f6368" font-family="sans-serif" '
                f'font-size="12">{html.escape(line, quote=False)}</text>'
                for left, line in zip(reversed(range(len(told))), told, strict=True)
            ),
            "</svg>\n",
        ]
    )
