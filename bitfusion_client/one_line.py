"""Text from anywhere as one printable line of limited length, for messages, logs and terminals."""

from __future__ import annotations

LONGEST_LINE = 400  # characters


def one_line(text: object, longest: int = LONGEST_LINE) -> str:
    """The text without line ends and control characters, cut to `longest` characters."""
    flat = " ".join(str(text).split())
    if not flat.isprintable():  # an escape sequence would reach a terminal or a log
        flat = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in flat)
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def shown_value(value: object) -> str:
    """A wrong value of any type, as an error message shows it: in the words of YAML and JSON.

    Nobody who has written ``null`` or ``true`` knows ``None`` or ``True``.
    """
    if isinstance(value, str):
        return one_line(value)
    try:
        return one_line(_as_json(value))
    except ValueError:  # an int with more digits than Python converts to text
        return "a number far too large"


def _as_json(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if not isinstance(value, (dict, list)):
        return repr(value)

    import json  # settings of the kernel have plain values; nobody waits for this import at a start

    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, RecursionError):
        return repr(value)
