"""The documents as a site, `make docs`: it builds without a warning, and asks no other server for a thing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.support.machine import scaled
from tools.site_hooks import of_the_site

LOADED = re.compile(r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?([^\s\">]+)|<link\b[^>]*\bhref=\"?([^\s\">]+)")
"""What a browser fetches for a page by itself; where links lead is up to the reader."""


def elsewhere(html: str) -> list[str]:
    found = ["".join(each) for each in LOADED.findall(html)]
    return [each for each in found if re.match(r"(?:[a-z]+:)?//", each)]


@pytest.mark.timeout(120)
def test_it_builds_without_a_warning_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="an environment made before the site was")
    command = [
        "env",
        "NO_MKDOCS_2_WARNING=1",
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        f"--site-dir={tmp_path}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=scaled(60))
    assert done.returncode == 0, done.stderr
    pages = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert len(pages) > 60
    assert {path.name: each for path, html in pages.items() if (each := elsewhere(html))} == {}
    styles = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.css"))
    assert re.findall(r"url\(\s*[\"']?(?:https?:)?//[^)]*", styles) == []


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ('<script src="https://unpkg.com/x.js"></script>', ["https://unpkg.com/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/x">', ["//fonts.example/x"]),
        ('<img src="images/x.png"><a href="https://example.com">', []),
    ],
)
def test_what_comes_from_elsewhere_is_found(html: str, expected: list[str]) -> None:
    assert elsewhere(html) == expected


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("[a file](../../examples/gpu-pods/whole.yaml)", "a file (`examples/gpu-pods/whole.yaml`)"),
        ("[`examples/gpu-pods`](../../examples/gpu-pods/)", "`examples/gpu-pods`"),
        ("[a page](../reference/x.md#y)", "[a page](../reference/x.md#y)"),
        ("[out](https://example.com)", "[out](https://example.com)"),
        ("```sh\n[a](../../x)\nb\n- c\n```", "```sh\n[a](../../x)\nb\n- c\n```"),
        ("You need:\n- one\n- two\n  more\n", "You need:\n\n- one\n- two\n  more\n"),
    ],
)
def test_a_page_is_changed_for_the_site(markdown: str, expected: str) -> None:
    assert of_the_site(markdown, "how-to/x.md") == expected
