"""Recognises a cell that holds only `%bitfusion` lines, which the proxy answers itself. Pure.

Imported before the proxy's first reply; what the lines mean (`commands`) is not.
"""

from __future__ import annotations

MAGIC = "%bitfusion"
CELL_MAGIC = "%%bitfusion"
"""Not a command, but what people try; the whole cell is answered as if it were this one line."""


QUESTIONS = frozenset(("status", "pool", "list_gpus", "health", "log", "help"))
"""The commands that change nothing."""
OF_THE_WAIT = frozenset(("request", "cancel"))
"""Those that change the wait for a GPU, or end it."""


def needs_no_turn(commands: list[str]) -> bool:
    """Whether all lines of a cell, as `command_lines` has them, are answered while another cell waits."""
    first_words = (line.split("#")[0].split()[:1] for line in commands)
    return all(not words or words[0] in QUESTIONS | OF_THE_WAIT for words in first_words)


def command_lines(code: str) -> list[str] | None:
    """The text after `%bitfusion` of each line, or None if the cell holds anything else.

    Blank lines and lines that are only a comment do not count. Such a cell needs no kernel, so it works in
    notebooks of any language. `%bitfusion?` asks for help, as IPython has it, and `%%bitfusion` is answered,
    too: it would take a GPU only to be told that there is no such thing.
    """
    if MAGIC not in code:
        return None
    if code.lstrip().startswith(CELL_MAGIC):
        rest = code.strip()[len(CELL_MAGIC) :]
        if not rest.strip("? \t"):
            return ["help"]
        return [CELL_MAGIC] if rest[0].isspace() else None
    commands = []
    for line in map(str.strip, code.splitlines()):
        if not line or line.startswith("#"):
            continue
        asks_for_help = line.startswith("?") or line.endswith("?")
        words = line.strip("?").split(None, 1)
        if words[:1] != [MAGIC]:
            return None
        text = words[1] if words[1:] else ""
        commands.append(f"help {text}".rstrip() if asks_for_help else text)
    return commands or None
