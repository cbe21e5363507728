"""Every decision stands in the table of `docs/decisions/README.md`, under its own title."""

from __future__ import annotations

import re
from pathlib import Path

DECISIONS = Path(__file__).parents[1] / "docs/decisions"
ROW = re.compile(
    r"^\| (\d{4}) \| \[(.+)\]\((\S+)\) \| \d{4}-\d\d-\d\d \| (accepted|superseded by \d{4}) \|$", re.MULTILINE
)


def test_the_table_lists_every_decision_with_its_title() -> None:
    rows = ROW.findall((DECISIONS / "README.md").read_text(encoding="utf-8"))
    listed = [(name, f"# {number} · {title}") for number, title, name, _ in rows]
    files = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
    assert listed == [(path.name, path.read_text(encoding="utf-8").splitlines()[0]) for path in files]


def test_every_decision_has_its_own_number() -> None:
    numbers = [path.name[:4] for path in DECISIONS.glob("*.md") if path.name != "README.md"]
    assert len(set(numbers)) == len(numbers)
