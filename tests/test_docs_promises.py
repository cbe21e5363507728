"""tests/promises.md: each sentence in it stands in its document, and each test that it names exists."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = (ROOT / "tests" / "promises.md").read_text(encoding="utf-8")
DOCUMENTS = sorted(
    (ROOT / "tests" / path).resolve().relative_to(ROOT).as_posix()
    for path in re.findall(r"(?m)^## \[.+\]\((\S+)\)$", TABLE)
)
KINDS = ("README.md", "manifests/README.md", "docs/how-to/", "docs/reference/", "docs/explanation/")
"""Documents, and folders of documents, of which some promise something."""

HEADING = re.compile(r"## \[.+\]\((\S+)\)")
TEST = re.compile(r"`(tests/\S+\.py)::(test_\w+)(?:\[(.+)\])?`")
BY_HAND = re.compile(r"by hand, (\d{4}-\d\d-\d\d)")
LEAST_WORDS = 3
"""Fewer could stand in a document by chance."""


@dataclass(frozen=True)
class Promise:
    """One row: what stands in which document, and what shows that it holds."""

    document: str
    sentence: str
    tests: tuple[re.Match[str], ...]


def promises(table: str) -> list[Promise]:
    """The rows of all documents.

    Raises:
        ValueError: A row is damaged, shows nothing, or stands there twice.
    """
    document, found = "", []
    for line in table.splitlines():
        if heading := HEADING.fullmatch(line):
            document = (ROOT / "tests" / heading[1]).resolve().relative_to(ROOT).as_posix()
        elif line.startswith("|") and line not in ("| promise | shown by |", "|---|---|"):
            if not document:
                raise ValueError(f"before any heading: {line}")
            found.append(_promise(document, line))
    listed = [(promise.document, promise.sentence) for promise in found]
    for row in listed:
        if listed.count(row) > 1:
            raise ValueError(f"twice: {row[1]}")
    return found


def _promise(document: str, line: str) -> Promise:
    parts = re.split(r"(?<!\\)\|", line)
    if len(parts) != 4 or parts[0] or parts[3]:
        raise ValueError(f"not two cells: {line}")
    sentence, shown_by = (part.strip().replace("\\|", "|") for part in parts[1:3])
    if len(sentence.split()) < LEAST_WORDS:
        raise ValueError(f"too short to be found again: {line}")
    tests = []
    for shown in shown_by.split("; "):
        if test := TEST.fullmatch(shown):
            tests.append(test)
        elif hand := BY_HAND.fullmatch(shown):
            date.fromisoformat(hand[1])
        else:
            raise ValueError(f"neither a test nor by hand, with a date: {line}")
    return Promise(document, sentence, tuple(tests))


@functools.cache
def text_of(document: str) -> str:
    """Without line ends, as a sentence may go over several lines."""
    return " ".join((ROOT / document).read_text(encoding="utf-8").split())


@functools.cache
def functions_in(path: str) -> dict[str, set[str]]:
    """The tests in a file, each with the texts in its decorators, among which are the ids of its cases."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.name: {
            part.value
            for decorator in node.decorator_list
            for part in ast.walk(decorator)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


def missing_tests(promise: Promise) -> list[str]:
    """Of the tests that a row names, those that are not there."""
    missing = []
    for test in promise.tests:
        path, name, case = test.groups()
        cases = functions_in(path).get(name) if (ROOT / path).is_file() else None
        if cases is None or (case is not None and case not in cases):
            missing.append(test[0])
    return missing


def test_every_document_has_its_table() -> None:
    assert {promise.document for promise in promises(TABLE)} == set(DOCUMENTS)
    assert [kind for kind in KINDS if not any(each.startswith(kind) for each in DOCUMENTS)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_sentence_stands_in_its_document(document: str) -> None:
    listed = [promise.sentence for promise in promises(TABLE) if promise.document == document]
    assert [sentence for sentence in listed if sentence not in text_of(document)] == []


def test_every_test_that_is_named_exists() -> None:
    assert [missing for promise in promises(TABLE) for missing in missing_tests(promise)] == []


SHOWN = "`tests/test_docs_promises.py::test_every_document_has_its_table`"
HEAD = "## [How the kernel behaves](../docs/explanation/kernel.md)\n| promise | shown by |\n|---|---|\n"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("| one two three |", "not two cells"),
        (f"| one two three | {SHOWN} | more |", "not two cells"),
        (f"| one two three | {SHOWN}", "not two cells"),
        (f"| one two | {SHOWN} |", "too short"),
        ("| one two three | |", "neither a test nor by hand"),
        ("| one two three | by hand |", "neither a test nor by hand"),
        ("| one two three | by hand, 2026-13-01 |", "month must be in"),
        ("| one two three | `tests/x.py` |", "neither a test nor by hand"),
        (f"| one two three | {SHOWN}\n| one two three | {SHOWN} |", "not two cells"),
        (f"| one two three | {SHOWN} |\n| one two three | {SHOWN} |", "twice"),
    ],
)
def test_a_damaged_row_is_told(row: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        promises(HEAD + row)


def test_a_row_before_any_heading_is_told() -> None:
    with pytest.raises(ValueError, match="before any heading"):
        promises(f"| one two three | {SHOWN} |")


@pytest.mark.parametrize(
    ("test", "there"),
    [
        (SHOWN, True),
        ("`tests/test_docs_promises.py::test_a_damaged_row_is_told[twice]`", True),
        ("`tests/test_docs_promises.py::test_a_damaged_row_is_told[thrice]`", False),
        ("`tests/test_docs_promises.py::test_nothing`", False),
        ("`tests/nowhere.py::test_nothing`", False),
    ],
)
def test_a_test_that_does_not_exist_is_found(test: str, there: bool) -> None:
    (promise,) = promises(f"{HEAD}| with a \\| in it | {SHOWN}; {test} |")
    assert promise.sentence == "with a | in it"
    assert missing_tests(promise) == ([] if there else [test])
