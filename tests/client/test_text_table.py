"""Text tables and bars."""

from __future__ import annotations

import pytest

from bitfusion_client.text_table import bar, box, display_width


def test_a_table_is_as_wide_as_its_texts() -> None:
    assert box(("a", "b"), [("1", "22"), ("333", "4")], frozenset((1,))) == (
        "┌─────┬────┐\n│ a   │  b │\n├─────┼────┤\n│ 1   │ 22 │\n│ 333 │  4 │\n└─────┴────┘\n"
    )


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        pytest.param("train.ipynb", 11, id="ASCII"),
        pytest.param("训练.ipynb", 10, id="Chinese"),
        pytest.param("🚀.ipynb", 8, id="emoji"),
        pytest.param("cafe\N{COMBINING ACUTE ACCENT}.ipynb", 10, id="an accent of its own"),
        pytest.param("café × 50 %", 11, id="Latin"),
        pytest.param("\u1112\u116e\u11ab", 2, id="Korean"),
        pytest.param("a\N{ZERO WIDTH SPACE}b", 2, id="no width"),
    ],
)
def test_a_text_takes_as_many_columns_as_a_terminal_shows(text: str, columns: int) -> None:
    assert display_width(text) == columns
    assert box(("n", "#"), [(text, "1")]).splitlines()[3] == f"│ {text} │ 1 │"
    assert box(("n" * 12, "#"), [(text, "1")]).splitlines()[3] == f"│ {text}{' ' * (12 - columns)} │ 1 │"


@pytest.mark.parametrize(
    ("used", "total", "shown"),
    [(0, 10, "░░░░"), (1, 100, "█░░░"), (5, 10, "██░░"), (12, 10, "████"), (0, 0, "░░░░")],
)
def test_a_bar_shows_what_is_in_use(used: int, total: int, shown: str) -> None:
    assert bar(used, total, 4) == shown
