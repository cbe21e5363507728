"""The documents that people read, and the commands in them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

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
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^ *```.*?^ *```", "", text))


def shell_blocks(text: str) -> list[str]:
    """What a reader is to paste into a shell."""
    return [textwrap.dedent(block) for block in re.findall(r"(?ms)^ *```sh\n(.*?)^ *```", text)]
