"""Sizes as people type them after `%bitfusion request`: `0.5`, `2`, `8Gi`, without an option. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def with_flags(words: Sequence[str]) -> list[str]:
    """The words with an option before each bare size: `2 0.5` is `-n 2 -p 0.5`, `8Gi` is `-m 8Gi`.

    What can't be a size stays as it is, for an error that names it; and so do options and their values.
    """
    found: list[str] = []
    left = iter(words)
    for word in left:
        if word.startswith("-"):
            found += [
                word,
                *([] if "=" in word else [value for value in (next(left, None),) if value is not None]),
            ]
        else:
            flag = _flag(word)
            found += [flag, word] if flag else [word]
    return found


def _flag(word: str) -> str:
    """The option that takes it: a whole number counts GPUs, a fraction is a share, a unit makes it memory."""
    if word[:1] not in tuple("0123456789.") or not any(map(str.isdigit, word)):
        return ""
    unit = word.lstrip("0123456789.")
    if unit and unit[0] in "kKMGTPEm" and unit.isalpha():
        return "-m"
    if unit and unit[0] not in ",/%":
        return ""
    return "-n" if word.isdigit() else "-p"
