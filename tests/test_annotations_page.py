"""docs/reference/annotations.md has every annotation, label and condition that the programs know."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.test_words import SOURCES

PAGE = (Path(__file__).parents[1] / "docs/reference/annotations.md").read_text(encoding="utf-8")
NAME = re.compile(r"(?:bitfusion\.io|bitfusion-client|auto-management)/[\w-]*\w")
LISTED = re.compile(r"`([\w.-]+/[\w-]+)[^`]*`((?:, `-\w+`)*)")


def listed(page: str) -> set[str]:
    """A row may have one name, and other ends of it: `a/b-c`, `-d`."""
    found = set()
    for first, ends in LISTED.findall(page):
        stem = first.rpartition("-")[0]
        found |= {first, *(f"{stem}-{end}" for end in re.findall(r"`-(\w+)`", ends))}
    return found


def known() -> set[str]:
    return {
        node.value
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value)
    }


def test_every_name_of_the_programs_is_on_the_page() -> None:
    names = known()
    assert len(names) > 25
    assert names - listed(PAGE) == set()


def test_what_is_missing_is_seen() -> None:
    assert listed("`a.io/limit-gpus`, `-share`; `a.io/x: ignore`") == {
        "a.io/limit-gpus",
        "a.io/limit-share",
        "a.io/x",
    }
