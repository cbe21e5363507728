"""What `make docs` changes of a page before mkdocs reads it; mkdocs.yml names this file.

On GitHub a page may link to any file of the repository, and a list may follow a line of text at once. The
site has the documents alone, and its Markdown wants an empty line before a list.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

FENCE = re.compile(r"(?ms)^( *)```.*?^\1```$")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")

ORDER = (
    "README.md",
    "tutorials",
    "how-to",
    "reference",
    "explanation",
    "when-something-is-wrong.md",
    "faq.md",
)


def on_nav(nav: Any, **_: Any) -> None:
    """Called by mkdocs once: the tabs stand in a reader's order, others after them."""
    nav.items.sort(key=lambda item: ORDER.index(top) if (top := _top(item)) in ORDER else len(ORDER))


def _top(item: Any) -> str:
    """The page or folder below ``docs`` that a tab is about."""
    while item.children:
        item = item.children[0]
    return str(item.file.src_uri.split("/")[0])


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return of_the_site(markdown, page.file.src_uri)


def of_the_site(markdown: str, page: str) -> str:
    """The page as the site reads it; code stays as it is.

    Args:
        markdown: As it stands in the repository.
        page: Its path below ``docs``.
    """
    parts, at = [], 0
    for block in FENCE.finditer(markdown):
        parts += [_text(markdown[at : block.start()], page), block[0]]
        at = block.end()
    return "".join([*parts, _text(markdown[at:], page)])


def _text(text: str, page: str) -> str:
    def outside(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[2]))
        if target.startswith("docs/"):
            return link[0]
        return f"{link[1]} (`{target}`)" if f"`{target}" not in link[1] else link[1]

    lines: list[str] = []
    for line in LINK.sub(outside, text).split("\n"):
        before = lines[-1] if lines else ""
        if ITEM.match(line) and before and not ITEM.match(before) and not before.startswith(" "):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
