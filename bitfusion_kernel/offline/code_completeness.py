"""Answers `is_complete_request` while no kernel runs: whether code can run or needs more lines.

Python is checked with codeop. The answers are those of IPython's `TransformerManager.check_complete`, for
which IPython's own lines (`%magic`, `!command`, `name?`) count as statements; a test compares them. For any
other language the answer is "unknown", as the protocol allows; the Jupyter client then decides by itself.
"""

from __future__ import annotations

import re
from typing import Any

_TOP_LEVEL_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT: cells may await
_INDENT = 4
_ASSIGNED = re.compile(r"\s*[A-Za-z_][\w.\[\], ]*=\s*[%!](?!=)")
_QUOTE = re.compile(r"'''|\"\"\"|'|\"")
_HELP = re.compile(r"[%\w*][\w.*\[\]\"']*\?{1,2}\s*$")
_PROMPT = re.compile(r"(?:>>> ?|In \[\d+\]: )")
_CONTINUED = re.compile(r"(?:\.\.\. ?|\s*\.{3,}: ?)")


def is_complete_reply(code: str, language: str) -> dict[str, Any]:
    """The content of the `is_complete_reply`: `status`, and `indent` if that is "incomplete"."""
    if language != "python":
        return {"status": "unknown"}
    status, indent = check(code)
    return {"status": status, "indent": " " * indent} if status == "incomplete" else {"status": status}


def check(code: str) -> tuple[str, int]:
    """One of complete, incomplete and invalid, and by how many spaces to indent the next line."""
    ends_with_newline = "\n" in code[len(code.rstrip()) :]
    lines = (code if ends_with_newline else code + "\n").splitlines(keepends=True)
    last = next((line for line in reversed(lines) if line.strip()), "")
    if last.strip("\n").endswith("\\"):
        return "incomplete", _indent(lines[-1])
    while len(lines) > 1 and not lines[0].strip():
        del lines[0]
    lines = _without_common_indent(_without_prompts(lines))
    if lines[0].startswith("%%"):
        return ("incomplete", _indent(lines[-1])) if lines[-1].strip() else ("complete", 0)
    plain = _PlainPython(lines)
    lines = plain.lines
    if not plain.last_code and not plain.inside:
        return "complete", 0  # nothing, or comments only
    if plain.inside:
        return ("incomplete", _indent(lines[-1])) if plain.depth >= 0 else ("invalid", 0)
    if plain.last_code.endswith(":"):
        return "incomplete", plain.statement_indent + _INDENT
    compiled = _compiled(lines)
    if compiled is not None:
        return compiled, _indent(lines[-1])
    if plain.statement_indent and not ends_with_newline:
        return "incomplete", _indent(lines[-1])
    return "complete", 0


def _compiled(lines: list[str]) -> str | None:
    """None if Python can compile it, else incomplete or invalid."""
    import codeop
    import warnings

    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= _TOP_LEVEL_AWAIT
    with warnings.catch_warnings():
        warnings.simplefilter("error", SyntaxWarning)
        try:
            code = compiler("".join(lines), symbol="exec")
        except (SyntaxError, OverflowError, ValueError, TypeError, MemoryError, SyntaxWarning):
            return "invalid"
    return "incomplete" if code is None else None


class _PlainPython:
    """The lines with IPython's own replaced by statements, and which strings and brackets stay open."""

    def __init__(self, lines: list[str]) -> None:
        self.quote = ""
        self.depth = 0
        self.statement_indent = 0  # of the last statement
        self.last_code = ""  # the last line that is not blank, without its comment
        self.lines = [self._take(line) for line in lines]

    @property
    def inside(self) -> bool:
        """A string over several lines or a bracket is open."""
        return len(self.quote) == 3 or self.depth != 0

    def _take(self, line: str) -> str:
        if not self.inside:
            line = _statement_for(line)
            if line.strip() and not line.lstrip().startswith("#"):
                self.statement_indent = _indent(line)
        code = self._scan(line)
        if code.strip():
            self.last_code = code.strip()
        return line

    def _scan(self, line: str) -> str:
        """Follow strings and brackets through one line; returns it without its comment."""
        position = 0
        while position < len(line):
            if self.quote:
                if line[position] == "\\":
                    position += 2
                elif line.startswith(self.quote, position):
                    position += len(self.quote)
                    self.quote = ""
                else:
                    position += 1
                continue
            letter = line[position]
            if letter == "#":
                return line[:position]
            found = _QUOTE.match(line, position)
            if found:
                self.quote = found.group()
                position = found.end()
                continue
            if letter in "([{":
                self.depth += 1
            elif letter in ")]}":
                self.depth -= 1
            position += 1
        if len(self.quote) == 1:
            self.quote = ""  # such a string ends with its line, and Python reports the error
        return line


def _statement_for(line: str) -> str:
    text = line.strip()
    if text[:1] == "#":
        return line
    blanks = _blanks(line)
    if text[:1] in tuple("%!?/;,") or ("#" not in text and _HELP.search(text)):
        return blanks + "pass\n"
    if _ASSIGNED.match(line):
        return line[: line.index("=")] + "= None\n"
    return line


def _without_prompts(lines: list[str]) -> list[str]:
    """Pasted `>>> ` and `In [1]: ` prompts are not code."""
    if not _PROMPT.match(lines[0]):
        return lines
    return [_CONTINUED.sub("", _PROMPT.sub("", line, count=1), count=1) for line in lines]


def _without_common_indent(lines: list[str]) -> list[str]:
    """IPython runs an indented piece of code: the first line's indentation counts as none."""
    blanks = _blanks(lines[0])
    return [line[len(blanks) :] if blanks and line.startswith(blanks) else line for line in lines]


def _blanks(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent(line: str) -> int:
    return len(_blanks(line).replace("\t", " " * _INDENT))
