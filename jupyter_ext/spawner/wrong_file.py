"""The error of a file that an admin wrote."""

from __future__ import annotations

from bitfusion_client.errors import WrongInput

LONGEST_VALUE = 60


class WrongFile(WrongInput):
    """One line for a person: the file, the entry, the value, what is allowed.

    `place` is the entry in the file's own words with its line, ``size 2 (line 7): share``; `value` is what
    stands there; `allowed` continues the sentence, ``must be …``.
    """

    def __init__(self, source: str, place: str, value: object, allowed: str) -> None:
        super().__init__()
        self.args = (source, place, value, allowed)
        self.source = source
        self.place = place
        self.value = value
        self.allowed = allowed
        parts = [f"{source}, {place}" if place else f"{source}:"]
        if value is not None:
            parts.append(shown(value))
        self.headline = " ".join([*parts, allowed])

    def __str__(self) -> str:
        return self.user_message


def shown(value: object) -> str:
    """A value as its person wrote it, quoted; never long, never the inside of a list."""
    if isinstance(value, dict):
        return "(a mapping)"
    if isinstance(value, (list, tuple, set)):
        return "(a list)"
    if isinstance(value, bool):
        return f'"{str(value).lower()}"'
    try:
        text = " ".join(str(value).split())
    except ValueError:  # an int with more digits than Python is willing to print
        return "(a number far too large)"
    return f'"{text}"' if len(text) <= LONGEST_VALUE else f'"{text[: LONGEST_VALUE - 1]}…"'
