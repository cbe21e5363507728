"""What an executed notebook shows, without what differs between any two runs of it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

CHANGES = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\b\d\d:\d\d UTC", "CLOCK"),
    (r"\b(?:\d+ min )?\d+ s\b", "N s"),
    (r"bitfusion\d{9}", "bitfusionN"),
    (r"bitfusion-proxy-\d+-[0-9a-f]+", "PRIVATE-FOLDER"),
    (r"(?<=/)(?:kernel-[0-9a-f-]{36}|tmp\w+)(?=\.json)", "CONNECTION-FILE"),
    (r"\b\d+ MiB$", "FREE SPACE"),
)
"""Patterns that match what a run has for itself, and what stands for it."""


class ExecutedCell(NamedTuple):
    """One code cell: its first line, its number, and all that is shown below it."""

    title: str
    number: int | None
    shown: str


def executed_cells(notebook: Any) -> list[ExecutedCell]:
    """The code cells of a notebook, in order."""
    return [
        ExecutedCell(cell.source.partition("\n")[0], cell.execution_count, _lasting(_shown(cell)))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _shown(cell: Any) -> str:
    """The texts of all outputs, each under a title that says what it is."""
    text, stream = "", None
    for output in cell.outputs:
        kind = output.output_type
        if kind == "stream":
            if output.name != stream:  # JupyterLab joins what comes in pieces
                text += f"\n--- {output.name}\n"
            text += output.text
        elif kind == "error":
            text += "\n".join(["\n--- error", output.ename, output.evalue, *output.traceback])
        else:
            text += f"\n--- {kind} {output.get('execution_count')} {sorted(output.data)}\n"
            text += "\n".join(data for mime, data in sorted(output.data.items()) if mime.startswith("text/"))
        stream = output.get("name")
    return text


def _lasting(text: str) -> str:
    text = text.replace("\r\n", "\n")  # of a pseudo-terminal; JupyterLab does so when it saves
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text
