"""Text from anywhere as one printable line of limited length, for messages, logs and terminals."""

from __future__ import annotations

LONGEST_LINE = 400  # characters


def one_line(text: object, longest: int = LONGEST_LINE) -> str:
    """The text without line ends and control characters, cut to `longest` characters."""
    flat = " ".join(str(text).split())
    if not flat.isprintable():  # an escape sequence would reach a terminal or a log
        flat = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in flat)
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"


def words_of(why: object) -> str:
    """Why something failed: the words of an OSError without its number, or of anything else; never empty.

    An error that somebody raised without words is told by its kind: "connection reset error".
    """
    has_words = not isinstance(why, BaseException) or any(why.args)
    return getattr(why, "strerror", None) or (has_words and str(why)) or _split_name(type(why).__name__)


def _split_name(name: str) -> str:
    parts = (
        f" {letter}" if letter.isupper() and after.islower() else letter
        for letter, after in zip(name, name[1:] + "r", strict=True)
    )
    return "".join(parts).strip().lower()


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
