"""The documents that people read, and the commands in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        ROOT / "README.md",
        *(
            path
            for name in ("docs", "examples", "manifests", "tests")
            for path in ROOT.glob(f"{name}/**/*.md")
        ),
    ]
)


def commands(text: str) -> Iterator[str]:
    """The lines of a document's blocks of code, and its words in code."""
    text = text.replace("\\\n", " ")
    for block in re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```", text):
        yield from block.splitlines()
    yield from words_in_code(text)


def words_in_code(text: str) -> list[str]:
    """A document's words in code, without its blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^ *```.*?^ *```", "", text))


def shell_blocks(text: str) -> list[str]:
    """What a reader is to paste into a shell."""
    return [textwrap.dedent(block) for block in re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", text)]


class ReaderBlock(NamedTuple):
    """What a page has its reader do: commands for a shell, or a part of a file in a folder called `my-…`."""

    page: str
    heading: str
    commands: str


@cache
def reader_pages() -> tuple[tuple[str, str], ...]:
    """Names and texts of README.md and of the pages in docs/; decisions are for nobody's shell."""
    names = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]
    pages = [name for name in names if re.match(r"README\.md$|docs/(?!decisions/)", name)]
    return tuple((page, (ROOT / page).read_text(encoding="utf-8")) for page in pages)


@cache
def reader_blocks() -> tuple[ReaderBlock, ...]:
    """What these pages have people do."""
    found = []
    for page, text in reader_pages():
        heading = ""
        for match in re.finditer(r"(?ms)^#+ ([^\n]*)$|^ *```(\w*)\n(.*?)^ *```", text):
            heading = match[1] or heading
            if match[2] == "sh" or (match[2] == "yaml" and match[3].startswith("# my-")):
                found.append(ReaderBlock(page, heading, textwrap.dedent(match[3])))
    return tuple(found)
