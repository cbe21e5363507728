"""Decisions have one shape, are short, and stand in the table of `docs/decisions/README.md`."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DECISIONS = ROOT / "docs/decisions"
TABLE = (DECISIONS / "README.md").read_text(encoding="utf-8")
TEXTS = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted(DECISIONS.glob("*.md"))
    if path.name != "README.md"
}
ROW = re.compile(r"^\[(\d{4})\]\((\S+)\) \| (.+) \| (.+)$", re.MULTILINE)
SUPERSEDED = "superseded by "
STATUS = rf"accepted|{SUPERSEDED}\d{{4}}"
REPLACED = r"(?: · (?:takes in|supersedes) (\d{4}(?:, \d{4})*))?"
HEAD = re.compile(rf"# (\d{{4}}) · (.+)\n\n\d{{4}}-\d\d-\d\d · ({STATUS}){REPLACED}\n\n")
SECTIONS = ["Context", "Decision", "Alternatives", "Price"]
RECORD_WORDS, TABLE_WORDS, ALL_WORDS, RECORDS = 250, 900, 12_000, 55


def faults(name: str, text: str) -> list[str]:
    """What is wrong with one record's shape."""
    head = HEAD.match(text)
    found = [] if head else ["begins with number, title, date and status"]
    if head and not name.startswith(f"{head[1]}-"):
        found.append("is called as its number")
    superseded = head is not None and head[3].startswith(SUPERSEDED)
    if not superseded and re.findall(r"^\*\*(\w+)\.\*\* ", text, re.MULTILINE) != SECTIONS:
        found.append(f"has {', '.join(SECTIONS)}")
    if len(text.split()) > RECORD_WORDS:
        found.append(f"has at most {RECORD_WORDS} words")
    return found


def head_of(name: str) -> re.Match[str]:
    head = HEAD.match(TEXTS[name])
    assert head
    return head


@pytest.mark.parametrize("name", TEXTS)
def test_a_record_is_short_and_has_number_date_status_and_price(name: str) -> None:
    assert not faults(name, TEXTS[name])


@pytest.mark.parametrize(
    "wrong",
    [
        ("2026-11-22 · ", ""),
        ("accepted", "proposed"),
        ("# 0001", "# 0002"),
        ("**Price.** ", ""),
        ("**Decision.** ", "**Decision.** " + "word " * RECORD_WORDS),
    ],
)
def test_a_wrong_record_is_found(wrong: tuple[str, str]) -> None:
    name = "0001-uv-and-one-lock-file.md"
    assert faults(name, TEXTS[name].replace(*wrong))


def test_the_table_lists_every_record_once_with_its_title_and_status() -> None:
    heads = [head_of(name) for name in TEXTS]
    assert sorted(ROW.findall(TABLE)) == [
        (h[1], name, h[2], h[3]) for name, h in zip(TEXTS, heads, strict=True)
    ]


def test_a_number_is_used_once() -> None:
    heads = [head_of(name) for name in TEXTS]
    numbers = [head[1] for head in heads] + re.findall(
        r"\b\d{4}\b", TABLE.partition("Moved into docstrings:")[2]
    )
    numbers += [number for head in heads for number in (head[4] or "").split(", ") if number]
    assert [number for number, count in Counter(numbers).items() if count > 1] == []
    assert {h[3].removeprefix(SUPERSEDED) for h in heads} - {"accepted"} <= {h[1] for h in heads}


def test_all_of_it_can_be_read() -> None:
    assert len(TABLE.split()) <= TABLE_WORDS
    assert len(TEXTS) <= RECORDS
    assert sum(len(text.split()) for text in TEXTS.values()) <= ALL_WORDS


def test_what_names_a_record_names_one_that_is_there() -> None:
    """In all files of the repository, by its file or by its number."""
    command = ["git", "grep", "-IohE", r"decisions/[0-9]{4}[-a-z0-9]*\.md|decisions?,? [0-9]{4}\b"]
    named = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    there = {*TEXTS, *(name[:4] for name in TEXTS)}
    assert len(named) > 10
    assert {re.split(r"[/ ]", name)[-1] for name in named if name} - there == set()
    within = {number for text in TEXTS.values() for number in re.findall(r"\((\d{4})\)", text)}
    replaced = {n for name in TEXTS for n in (head_of(name)[4] or "").split(", ")}
    assert within - there - replaced == set()
