"""Which Pythons a command line names, and of which version they are as their files tell: none is started."""

from __future__ import annotations

import os

from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_FOUND = 4
_NAME = "python3."


def paths(argv: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """By the word that names it where each is, for a program with these variables."""
    found: dict[str, str] = {}
    for word in argv:
        if not os.path.basename(word).startswith("python") or len(found) == MOST_FOUND:
            continue
        folders = [""] if "/" in word else given.get("PATH", "").split(":")
        for path in (os.path.join(folder, word) for folder in folders):
            if path.startswith("/") and os.access(path, os.X_OK):
                found[word] = path
                break
    return found


def versions(argv: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """By the same words ``3.12``; those of which it is known."""
    found = {word: _version(path) for word, path in paths(argv, given).items()}
    return {word: version for word, version in found.items() if version}


def prefix(path: str) -> str:
    """The environment of a Python, in which its packages are."""
    return os.path.dirname(os.path.dirname(path))


def _version(path: str) -> str:
    """By the name behind all links, or else by the only folder of a standard library."""
    name = os.path.basename(os.path.realpath(path))
    try:
        names = [name] if name.startswith(_NAME) else os.listdir(os.path.join(prefix(path), "lib"))
    except (OSError, ValueError):
        return ""
    minors = {each.removeprefix(_NAME) for each in names if each.startswith(_NAME)}
    minor = minors.pop() if len(minors) == 1 else ""
    return f"3.{minor}" if minor.isdecimal() else ""
