"""Plain text tables for a terminal, aligned by the columns that a text takes there, not by its length."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def box(titles: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> str:
    """A table with lines around it, its columns as wide as their widest text.

    Args:
        titles: Of the columns.
        rows: The texts of each row.
        right: The columns that are flush right, counted from 0.
    """
    widths = [max(map(display_width, column)) for column in zip(titles, *rows, strict=True)]

    def line(left: str, middle: str, end: str) -> str:
        return left + middle.join("─" * (width + 2) for width in widths) + end + "\n"

    def cells(row: Sequence[str]) -> str:
        padded = (
            f" {pad(text, width, column in right)} "
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        return "│" + "│".join(padded) + "│\n"

    body = "".join(cells(row) for row in rows)
    return line("┌", "┬", "┐") + cells(titles) + line("├", "┼", "┤") + body + line("└", "┴", "┘")


def bar(used: int, total: int, width: int = 12) -> str:
    """How full something is; anything in use shows at least one mark."""
    full = min(width, max(1 if used > 0 else 0, round(width * used / total) if total else 0))
    return "█" * full + "░" * (width - full)


def pad(text: str, width: int, right: bool = False) -> str:
    """A text with blanks, so that it takes so many columns of a terminal; `right`: the blanks come first."""
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes: East Asian letters and emoji take two, accents none."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # 1 MB, which few tables need

    def width(letter: str) -> int:
        if category(letter) in ("Mn", "Me", "Cf") or "\u1160" <= letter <= "\u11ff":  # vowels in a syllable
            return 0
        return 2 if east_asian_width(letter) in ("W", "F") else 1

    return sum(map(width, text))
