"""`CHANGELOG.md` is as *Keep a Changelog* has it, and one version can be read in a minute or two."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

CHANGELOG = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
WORDS = 600


def faults(text: str) -> list[str]:
    """What is wrong with a changelog's shape."""
    found = [] if text.startswith("# Changelog\n") else ["begins with its title"]
    versions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    if not versions:
        found.append("has a version")
    for version in versions:
        title, *sections = re.split(r"^### ", version, flags=re.MULTILINE)
        name = title.partition("\n")[0]
        released = re.fullmatch(r"\[\d+\.\d+\.\d+\] - (\d{4}-\d\d-\d\d)", name)
        if released:
            date.fromisoformat(released[1])
        elif name != "[Unreleased]":
            found.append(f"{name}: a version and its date, or Unreleased")
        kinds = [section.partition("\n")[0] for section in sections]
        if not kinds or kinds != [kind for kind in KINDS if kind in kinds]:
            found.append(f"{name}: kinds of changes, each once, in their order")
        if any(not re.match(r"[^\n]+\n\n(?:(?:- |  )[^\n]+\n)+\s*$", section) for section in sections):
            found.append(f"{name}: a list under each kind")
        if len(version.split()) > WORDS:
            found.append(f"{name}: at most {WORDS} words")
    return found


def test_it_has_the_shape() -> None:
    assert faults(CHANGELOG) == []


@pytest.mark.parametrize(
    "wrong",
    [
        ("# Changelog", "# Changes"),
        ("## [Unreleased]", "## 0.1.0 (not yet released)"),
        ("## [Unreleased]", "## [0.1.0] - soon"),
        ("### Added", "### New"),
        ("### Security", "### Added"),
        ("- Containerfiles ", "Containerfiles "),
        ("- Containerfiles ", "- Containerfiles " + "word " * WORDS),
    ],
)
def test_a_wrong_one_is_found(wrong: tuple[str, str]) -> None:
    assert wrong[0] in CHANGELOG
    assert faults(CHANGELOG.replace(*wrong))
