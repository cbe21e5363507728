"""Reads a Containerfile: the part of its language that this project's images are written in. Pure.

`image_builder` builds what is read here; where there is a registry, docker and podman read the same file.
What they would understand and this doesn't is an error with the line's number, never left out silently.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_FLAGS: dict[str, frozenset[str]] = {
    "ARG": frozenset(),
    "CMD": frozenset(),
    "COPY": frozenset({"from", "chown", "chmod"}),
    "ENTRYPOINT": frozenset(),
    "ENV": frozenset(),
    "EXPOSE": frozenset(),
    "FROM": frozenset(),
    "LABEL": frozenset(),
    "RUN": frozenset(),
    "USER": frozenset(),
    "WORKDIR": frozenset(),
}
_VARIABLE = re.compile(r"\\\$|\$(?:\{(\w+)(?::([-+])([^}]*))?\}|(\w+))")
_PAIR = re.compile(r"(\w[\w.-]*)=(.*)", re.DOTALL)
_OCTAL = re.compile(r"[0-7]{3,4}")


class ContainerfileError(Exception):
    """What in a Containerfile cannot be built here: file, line, what stands there, what is understood."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of a stage.

    Attributes:
        line: Number of its first line.
        name: In capitals.
        words: An exec form's words, or what the shell splits the rest into; of RUN's shell form the one text.
        flags: `--from=build` is `{"from": "build"}`.
        is_exec: Whether the words were given as JSON, so that no shell takes part.
    """

    line: int
    name: str
    words: tuple[str, ...]
    flags: Mapping[str, str] = field(default_factory=dict)
    is_exec: bool = False


@dataclass(frozen=True)
class Stage:
    """What stands between one FROM and the next.

    Attributes:
        base: The image's name as written, with its variables.
        name: After AS; empty without.
        instructions: All but FROM, in order.
        line: Of the FROM.
    """

    base: str
    name: str
    instructions: tuple[Instruction, ...]
    line: int


@dataclass(frozen=True)
class Containerfile:
    """A whole file: the arguments before the first FROM with their defaults, and the stages, at least one."""

    name: str
    arguments: Mapping[str, str]
    stages: tuple[Stage, ...]


def parse(text: str, name: str = "Containerfile") -> Containerfile:
    """Read a Containerfile. `name` is what errors call it. Raises ContainerfileError."""
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for instruction in _instructions(text, name):
        if instruction.name == "FROM":
            stages.append(_stage(instruction, name, [stage.name for stage in stages]))
        elif stages:
            last = stages[-1]
            stages[-1] = Stage(last.base, last.name, (*last.instructions, instruction), last.line)
        elif instruction.name == "ARG":
            for word in instruction.words:
                key, _, value = word.partition("=")
                arguments[key] = expand(value, arguments)
        else:
            raise _wrong(name, instruction.line, f"{instruction.name} stands before the first FROM")
    if not stages:
        raise ContainerfileError(f"{name}: it has no FROM")
    return Containerfile(name, arguments, tuple(stages))


def expand(text: str, variables: Mapping[str, str]) -> str:
    r"""Put in variables as docker does: `$A`, `${A}`, `${A:-default}`, `${A:+other}`; `\$` is a dollar."""

    def value(match: re.Match[str]) -> str:
        braced, sign, other, plain = match.groups()
        found = variables.get(braced or plain or "", "")
        if match[0] == "\\$":
            return "$"
        if sign == "-":
            return found or expand(other, variables)
        if sign == "+":
            return expand(other, variables) if found else ""
        return found

    return _VARIABLE.sub(value, text)


def pairs(instruction: Instruction) -> dict[str, str]:
    """The names and values of an ENV, a LABEL or an ARG with a default; checked when the file was read."""
    found = {}
    for word in instruction.words:
        name, _, value = word.partition("=")
        found[name] = value
    return found


def is_sent(path: str, ignore: Sequence[str]) -> bool:
    """Whether a .dockerignore lets a file be sent to the build; the last line that fits decides.

    `path` is relative to the context. A line without `!` leaves out what it names and all below it.
    """
    sent = True
    for line in ignore:
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        keep = pattern.startswith("!")
        pattern = pattern.lstrip("!").strip("/")
        parts = path.split("/")
        if any(_fits("/".join(parts[:count]), pattern) for count in range(1, len(parts) + 1)):
            sent = keep
    return sent


def _fits(path: str, pattern: str) -> bool:
    if "**" in pattern:  # docker's for any number of folders; fnmatch's star does the same
        return fnmatchcase(path, pattern.replace("**/", "*").replace("**", "*"))
    wanted, given = pattern.split("/"), path.split("/")
    return len(wanted) == len(given) and all(map(fnmatchcase, given, wanted))


def _instructions(text: str, name: str) -> list[Instruction]:
    found = []
    for number, line in _joined(text, name):
        word, _, rest = line.strip().partition(" ")
        found.append(_instruction(number, word.upper(), rest.strip(), name))
    return found


def _joined(text: str, name: str) -> list[tuple[int, str]]:
    """The logical lines: continued ones joined, comments and empty lines left out, also between parts."""
    found: list[tuple[int, str]] = []
    start, pending = 0, ""
    number = 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#") or not line.strip():
            if line.lower().lstrip("# ").startswith(("syntax=", "escape=")):
                raise _wrong(name, number, f"the directive {line.strip()!r} is not understood here")
            continue
        start = start or number
        if line.rstrip().endswith("\\"):
            pending += line.rstrip()[:-1]
            continue
        found.append((start, pending + line))
        start, pending = 0, ""
    if start:
        raise _wrong(name, number, "the file ends after a line that is to be continued")
    return found


def _instruction(line: int, name: str, rest: str, file: str) -> Instruction:
    if name not in _FLAGS:
        known = ", ".join(sorted(_FLAGS))
        raise _wrong(file, line, f"{name} is not understood here, only {known}")
    flags, rest = _flags(line, name, rest, file)
    if not rest:
        raise _wrong(file, line, f"{name} needs something after it")
    if "<<" in rest and name in ("RUN", "COPY"):
        raise _wrong(file, line, "here-documents are not understood here")
    if rest.startswith("[") and name in ("RUN", "CMD", "ENTRYPOINT", "COPY"):
        return Instruction(line, name, _exec_form(line, name, rest, file), flags, is_exec=True)
    if name in ("RUN", "CMD", "ENTRYPOINT"):
        return Instruction(line, name, (rest,), flags)
    try:
        words = tuple(shlex.split(_kept_dollars(rest)))
    except ValueError as error:
        raise _wrong(file, line, f"{name} {rest}: {error}") from None
    instruction = Instruction(line, name, words, flags)
    _check(instruction, file)
    return instruction


def _kept_dollars(text: str) -> str:
    r"""`\$` for `expand`, which comes after shlex has taken one backslash away."""
    return text.replace("\\$", "\\\\$")


def _flags(line: int, name: str, rest: str, file: str) -> tuple[dict[str, str], str]:
    flags = {}
    while rest.startswith("--"):
        word, _, rest = rest.partition(" ")
        rest = rest.strip()
        key, _, value = word.removeprefix("--").partition("=")
        if key not in _FLAGS[name] or not value:
            known = ", ".join(f"--{flag}=…" for flag in sorted(_FLAGS[name])) or "none"
            raise _wrong(file, line, f"{name} {word} is not understood here; its options are {known}")
        flags[key] = value
    if not _OCTAL.fullmatch(flags.get("chmod", "755")):
        raise _wrong(file, line, f"--chmod={flags['chmod']} must be octal, like 755")
    return flags, rest


def _exec_form(line: int, name: str, text: str, file: str) -> tuple[str, ...]:
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise _wrong(file, line, f"{name} {text} is no JSON list of words; a word has double quotes")
    return tuple(words)


def _check(instruction: Instruction, file: str) -> None:
    name, words, line = instruction.name, instruction.words, instruction.line
    if name in ("ENV", "LABEL"):
        for word in words:
            if not _PAIR.fullmatch(word):
                raise _wrong(file, line, f"{name} {word}: only NAME=VALUE is understood here")
    if name in ("USER", "WORKDIR") and len(words) != 1:
        raise _wrong(file, line, f"{name} takes one word, not {len(words)}")
    if name == "COPY" and len(words) < 2:
        raise _wrong(file, line, "COPY needs what is copied and where to")


def _stage(instruction: Instruction, file: str, before: Sequence[str]) -> Stage:
    words = instruction.words
    if len(words) == 3 and words[1].upper() == "AS":
        if words[2] in before:
            raise _wrong(file, instruction.line, f"there are two stages called {words[2]}")
        return Stage(words[0], words[2], (), instruction.line)
    if len(words) != 1:
        raise _wrong(
            file, instruction.line, f"FROM {' '.join(words)}: only FROM IMAGE [AS NAME] is understood"
        )
    return Stage(words[0], "", (), instruction.line)


def _wrong(file: str, line: int, what: str) -> ContainerfileError:
    return ContainerfileError(f"{file}, line {line}: {what}")
