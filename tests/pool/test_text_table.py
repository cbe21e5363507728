"""Text tables and bars."""

from __future__ import annotations

import pytest

from bitfusion_pool.text_table import bar, box


def test_a_table_is_as_wide_as_its_texts() -> None:
    assert box(("a", "b"), [("1", "22"), ("333", "4")], frozenset((1,))) == (
        "┌─────┬────┐\n│ a   │  b │\n├─────┼────┤\n│ 1   │ 22 │\n│ 333 │  4 │\n└─────┴────┘\n"
    )


@pytest.mark.parametrize(
    ("used", "total", "shown"),
    [(0, 10, "░░░░"), (1, 100, "█░░░"), (5, 10, "██░░"), (12, 10, "████"), (0, 0, "░░░░")],
)
def test_a_bar_shows_what_is_in_use(used: int, total: int, shown: str) -> None:
    assert bar(used, total, 4) == shown
