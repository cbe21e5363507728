"""One word, one form of numbers and one name for each fact, wherever people read it.

What the real client prints in its recorded lines stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    *("bitfusion_client", "bitfusion_cluster", "bitfusion_device_plugin", "bitfusion_kernel"),
    *("bitfusion_pods", "bitfusion_pool", "jupyter_ext", "kubeflow_bitfusion", "notebook_controller_patch"),
)
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
DOCUMENTS = [
    ROOT / "README.md",
    *(
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.name != "benchmarks.md" and "decisions" not in path.parts
    ),  # has figures
]
WRONG = (
    (re.compile(r"\bplace \{?\w+\}? of \b", re.IGNORECASE), "position 2 of 3"),
    (re.compile(r"\bplace in the queue\b"), "position in the queue"),
    (re.compile(r"\blocal 127\.0\.0\.1:"), "127.0.0.1:56001"),
    (re.compile(r"\b\d{1,3},\d{3} (?:of|MiB|│)"), "16160"),
    (re.compile(r"\bGPUs?, partial\b"), "1 GPU × 50 %"),
    (re.compile(r"│\s*\d+[smh]\d*[smh]?\s*│"), "32 s, 4 min 05 s"),
)  # fmt: skip


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """All that a module may print: its constant texts, but for docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documents = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, documented)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{x}" for part in node.values)
            yield node.lineno, "".join(map(str, parts))


def test_programs_say_each_fact_in_one_way() -> None:
    found = [
        f"{path}:{line}: {text!r}: say {right}"
        for path in SOURCES
        for line, text in texts(path)
        for wrong, right in WRONG
        if wrong.search(text)
    ]
    assert found == []


def test_no_number_has_separators_that_others_have_not() -> None:
    """The client's own lines have none: ``8080 MiB``."""
    found = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr)
        for part in node.format_spec.values
        if isinstance(part, ast.Constant) and "," in str(part.value)
    ]
    assert found == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_say_each_fact_as_programs_do(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [found[0] for wrong, _ in WRONG for found in wrong.finditer(text)] == []
