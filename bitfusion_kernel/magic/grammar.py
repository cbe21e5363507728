"""`%bitfusion …` lines: recognising a cell made only of them, and reading each line. Pure.

The proxy answers such a cell itself, in any language and without taking a GPU. In other Python cells the
line magic (`ipython_magic`) sends the same words to the proxy.
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

MAGIC = "%bitfusion"

COMMANDS = {
    "status": "what this kernel asks for, holds, and waits for (also without a word)",
    "acquire": "take the GPU now instead of with the first cell",
    "request": "show or change the size, spelled as the client spells it: request -n 2 -p 0.5",
    "pool": "the servers and GPUs of the pool as a table",
    "list_gpus": "what `bitfusion list_gpus` prints",
    "health": "what `bitfusion health` prints",
    "log": "the lines that the `bitfusion run` of this kernel has printed",
    "help": "this list",
}


class Command(NamedTuple):
    """One line: the command's name and its words. `problem` is set instead if it can't be read."""

    name: str
    words: tuple[str, ...] = ()
    problem: str | None = None


def parse_line(rest: str) -> Command:
    """What stands behind `%bitfusion` on one line."""
    try:
        words = shlex.split(rest, comments=True)
    except ValueError as error:
        return Command("", (), f"can't read {rest.strip()!r}: {error}")
    name = words[0] if words else "status"
    if name not in COMMANDS:
        return Command(name, (), f"{name!r} is no %bitfusion command; there are: {', '.join(COMMANDS)}")
    takes_words = name == "request"
    if words[1:] and not takes_words:
        return Command(
            name, (), f"%bitfusion {name} takes no arguments, but was given: {' '.join(words[1:])}"
        )
    return Command(name, tuple(words[1:]))


def parse_cell(code: str) -> list[Command] | None:
    """The commands of a cell that holds nothing else (comments and blank lines aside), or None."""
    if MAGIC not in code:
        return None
    commands = []
    for line in code.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        word, *rest = line.split(None, 1)
        if word != MAGIC:
            return None
        commands.append(parse_line(rest[0] if rest else ""))
    return commands or None


def help_text() -> str:
    """What `%bitfusion help` prints."""
    return "\n".join(f"%bitfusion {name:<10} {text}" for name, text in COMMANDS.items())
