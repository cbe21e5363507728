"""How rows are printed."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.measure import Row, format_value

HEADINGS = ("what", "plain", "ours", "compared", "goal", "", "n")


def format_table(rows: Sequence[Row]) -> str:
    """One line a row, in columns; notes stand below the row they explain."""
    cells = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [_line(HEADINGS, widths), _line(["-" * width for width in widths], widths)]
    for row, line in zip(rows, cells[1:], strict=True):
        lines.append(_line(line, widths))
        if row.note:
            lines.append(f"    ({row.note})")
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.what,
        format_value(row.plain.value, row.unit) if row.plain else "-",
        format_value(row.ours.value, row.unit) if row.ours else "-",
        row.comparison,
        row.goal.describe(),
        row.verdict,
        str(len(row.ours.values)) if row.ours else "0",
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    # Names read from the left, figures from the right.
    parts = [cells[0].ljust(widths[0])]
    parts += [cell.rjust(width) for cell, width in zip(cells[1:4], widths[1:4], strict=True)]
    parts += [cell.ljust(width) for cell, width in zip(cells[4:6], widths[4:6], strict=True)]
    parts += [cells[6].rjust(widths[6])]
    return "  ".join(parts).rstrip()
