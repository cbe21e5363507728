"""Recognises a cell that holds only `%bitfusion` lines, which the proxy answers itself. Pure.

Imported before the proxy's first reply; what the lines mean (`commands`) is not.
"""

from __future__ import annotations

MAGIC = "%bitfusion"


def command_lines(code: str) -> list[str] | None:
    """The text after `%bitfusion` of each line, or None if the cell holds anything else.

    Blank lines and lines that are only a comment do not count. Such a cell needs no kernel, so it works in
    notebooks of any language.
    """
    if MAGIC not in code:
        return None
    commands = []
    for line in map(str.strip, code.splitlines()):
        if not line or line.startswith("#"):
            continue
        word, *rest = line.split(None, 1)
        if word != MAGIC:
            return None
        commands.append(rest[0] if rest else "")
    return commands or None
