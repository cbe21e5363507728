"""Plain text tables for a terminal."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def box(titles: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """A table with lines around it, its columns as wide as their longest text.

    Args:
        titles: Of the columns.
        rows: The texts of each row.
        right: The columns that are flush right, counted from 0.
    """
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]

    def line(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end + "\n"

    def cells(row: Sequence[str]) -> str:
        padded = (
            f" {text:>{width}} " if column in right else f" {text:<{width}} "
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return "│" + "│".join(padded) + "│\n"

    body = "".join(cells(row) for row in rows)
    return line("┌", "┬", "┐") + cells(titles) + line("├", "┼", "┤") + body + line("└", "┴", "┘")


def bar(used: int, total: int, width: int = 12) -> str:
    """How full something is; anything in use shows at least one mark."""
    full = min(width, max(1 if used > 0 else 0, round(width * used / total) if total else 0))
    return "█" * full + "░" * (width - full)
