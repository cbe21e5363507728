"""Reads what is looked for in a Containerfile: its instructions, and the images that it begins with. Pure.

What builds it, and knows all of the language, is docker, podman or buildah. `make images` looks for the bases
that it pins, tests for what a file says.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from string import Template

_COMMENT = re.compile(r"(?m)^\s*(#.*)?\n")  # an empty line, too
_CONTINUED = re.compile(r"\\[ \t]*\n")
_FLAG = re.compile(r"--([\w-]+)=(\S+)\s+")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        name: In capitals.
        words: An exec form's words, or what the shell splits the rest into; of RUN's shell form the one text.
        flags: `--from=build` is `{"from": "build"}`.
        is_exec: Whether the words were given as JSON, so that no shell takes part.
    """

    name: str
    words: tuple[str, ...]
    flags: Mapping[str, str]
    is_exec: bool


def parse(text: str) -> tuple[Instruction, ...]:
    """All instructions of a Containerfile, in order."""
    lines = _CONTINUED.sub("", _COMMENT.sub("", f"{text}\n")).splitlines()
    return tuple(map(_instruction, lines))


def arguments(file: tuple[Instruction, ...], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What stands before the first FROM, with its defaults; `given` as `--build-arg`."""
    found: dict[str, str] = {}
    for each in file:
        if each.name == "FROM":
            break
        for word in each.words:
            name, _, value = word.partition("=")
            found[name] = (given or {}).get(name, Template(value).safe_substitute(found))
    return found


def bases(file: tuple[Instruction, ...], given: Mapping[str, str]) -> list[str]:
    """The images that its stages begin with, other stages left out; `given` as `--build-arg`."""
    values = arguments(file, given)
    found, stages = [], {"scratch"}
    for each in file:
        if each.name == "FROM":
            name = Template(each.words[0]).safe_substitute(values)
            if name not in stages:
                found.append(name)
            stages.add(each.words[-1])
    return found


def _instruction(line: str) -> Instruction:
    name, _, rest = line.strip().partition(" ")
    name, rest, flags = name.upper(), rest.strip(), {}
    while match := _FLAG.match(rest):
        flags[match[1]] = match[2]
        rest = rest[match.end() :]
    if rest.startswith("["):
        with suppress(ValueError):  # `RUN [ -f x ]` is for the shell
            return Instruction(name, tuple(json.loads(rest)), flags, is_exec=True)
    words = (rest,) if name in ("RUN", "CMD", "ENTRYPOINT") else tuple(shlex.split(rest))
    return Instruction(name, words, flags, is_exec=False)
