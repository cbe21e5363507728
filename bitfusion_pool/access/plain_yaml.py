"""The part of YAML that client.yaml and servers.conf are written in, read without a library.

The `bitfusion` command runs without site-packages, so there is no PyYAML for it. Read here: mappings and
lists in block style, values on one line (plain or quoted), ``{}``, ``[]`` and comments. Everything else is
refused and named, never guessed; what is read means the same as in YAML, where every value is taken as text.
"""

from __future__ import annotations

import re

from bitfusion_client.fast_imports import TYPE_CHECKING, dataclass

if TYPE_CHECKING:
    from typing import TypeAlias

    Value: TypeAlias = "str | list[Node] | dict[str, Node]"

MAX_LINES = 2000
MAX_DEPTH = 16
LONGEST_SHOWN = 60  # characters of a line in an error

_KEY = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*) *:(?: +|$)")
_ITEM = re.compile(r"-(?: +|$)")
_NOT_FIRST = "-?:,[]{}#&*!|>'\"%@`"  # they mean something at the beginning of a value
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n", "t": "\t"}


class WrongYaml(ValueError):
    """The text is not in the YAML that is read here; `str()` names the line and says what is wrong.

    Attributes:
        line: Counted from 1.
        why: What is wrong with it, without anything that stands in it.
    """

    def __init__(self, line: int, why: str, shown: str = "") -> None:
        """`shown` is what stands there; it is cut."""
        cut = shown if len(shown) <= LONGEST_SHOWN else shown[: LONGEST_SHOWN - 1] + "…"
        super().__init__(f"line {line}: {why}" + (f": {cut}" if cut else ""))
        self.line = line
        self.why = why


@dataclass(frozen=True, slots=True)
class Node:
    """A value, and the line it begins in, counted from 1."""

    line: int
    value: Value


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    indent: int
    text: str


def parse_yaml(text: str) -> Node:
    """The mapping or list that a text holds.

    Raises:
        WrongYaml: It is something else, or uses more of YAML than is read here.
    """
    lines = _lines(text)
    if not lines:
        raise WrongYaml(1, "there is nothing in it")
    parser = _Parser(lines)
    node = parser.block(lines[0].indent, 1)
    left = parser.next
    if left is not None:
        raise WrongYaml(left.number, "indented differently from the lines above", left.text)
    return node


def _lines(text: str) -> list[_Line]:
    found: list[_Line] = []
    for number, whole in enumerate(text.split("\n"), 1):
        if number > MAX_LINES:
            raise WrongYaml(number, f"it has more than {MAX_LINES} lines")
        line = whole[:-1] if whole.endswith("\r") else whole
        if "\t" in line:
            raise WrongYaml(number, "there is a tab; YAML is indented with spaces")
        if not line.isprintable():
            raise WrongYaml(number, "there is a character that cannot be shown")
        content = line.strip(" ")
        if not content or content.startswith("#"):
            continue
        if content == "---" and not line.startswith(" ") and not found:
            continue  # the beginning of a document
        found.append(_Line(number, len(line) - len(line.lstrip(" ")), content))
    return found


class _Parser:
    """Goes through the lines once, from the first to the last."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines[::-1]

    @property
    def next(self) -> _Line | None:
        return self._lines[-1] if self._lines else None

    def block(self, indent: int, depth: int) -> Node:
        """The mapping or list that begins in the next line, which is indented so far."""
        line = self._lines[-1]
        if depth > MAX_DEPTH:
            raise WrongYaml(line.number, f"it is nested more than {MAX_DEPTH} deep")
        if _ITEM.match(line.text):
            return self._list(indent, depth)
        return self._mapping(indent, depth)

    def _list(self, indent: int, depth: int) -> Node:
        first = self._lines[-1].number
        items: list[Node] = []
        while self._lines:
            line = self._lines[-1]
            found = _ITEM.match(line.text)
            if line.indent != indent or not found:
                break
            self._lines.pop()
            rest = line.text[found.end() :]
            column = indent + found.end()
            if not rest or rest.startswith("#"):
                items.append(self._nested(line, indent + 1, depth))
            elif _ITEM.match(rest):
                raise WrongYaml(line.number, "a list in a list on one line", line.text)
            elif _KEY.match(rest):
                self._lines.append(_Line(line.number, column, rest))
                items.append(self.block(column, depth + 1))
            else:
                items.append(self._scalar(line, rest, indent))
        return Node(first, items)

    def _mapping(self, indent: int, depth: int) -> Node:
        first = self._lines[-1].number
        entries: dict[str, Node] = {}
        while self._lines:
            line = self._lines[-1]
            if line.indent != indent:
                break
            found = _KEY.match(line.text)
            if not found:
                if entries and _ITEM.match(line.text):
                    why = "a list item where a key is expected"
                else:
                    why = "not 'key: value', with a space after the colon"
                raise WrongYaml(line.number, why, line.text)
            self._lines.pop()
            key, rest = found[1], line.text[found.end() :]
            if key in entries:
                raise WrongYaml(line.number, f"{key} is there already, in line {entries[key].line}")
            if rest and not rest.startswith("#"):
                entries[key] = self._scalar(line, rest, indent)
            else:
                after = self.next
                is_list = after is not None and after.indent == indent and _ITEM.match(after.text)
                entries[key] = self._nested(line, indent if is_list else indent + 1, depth)
        return Node(first, entries)

    def _nested(self, line: _Line, least: int, depth: int) -> Node:
        """What the lines below `line` hold if they are indented at least so far, else nothing."""
        after = self.next
        if after is None or after.indent < least:
            return Node(line.number, "")
        return Node(line.number, self.block(after.indent, depth + 1).value)

    def _scalar(self, line: _Line, text: str, indent: int) -> Node:
        after = self.next
        if after is not None and after.indent > indent:
            raise WrongYaml(after.number, "a value must be on one line", after.text)
        return Node(line.number, _value(text, line.number))


def _value(text: str, number: int) -> Value:
    if text[0] in "'\"":
        return _quoted(text, number)
    plain = text.partition(" #")[0].rstrip(" ")
    if plain in ("{}", "[]"):
        return {} if plain == "{}" else []
    if plain[0] in _NOT_FIRST:
        raise WrongYaml(number, f"a value that begins with {plain[0]} must be in quotes", plain)
    if ": " in plain or plain.endswith(":"):
        raise WrongYaml(number, "a second colon; such a value must be in quotes", plain)
    return plain


def _quoted(text: str, number: int) -> str:
    found = (_SINGLE if text[0] == "'" else _DOUBLE).match(text)
    if not found:
        raise WrongYaml(number, f"the closing {text[0]} is missing", text)
    rest = text[found.end() :]
    if (rest and not rest.lstrip(" ").startswith("#")) or rest.startswith("#"):
        raise WrongYaml(number, f"there is more text after the closing {text[0]}", text)
    if text[0] == "'":
        return found[1].replace("''", "'")
    for escape in _ESCAPE.finditer(found[1]):
        if escape[1] not in _ESCAPED:
            raise WrongYaml(number, f"\\{escape[1]} is not read here; single quotes need no \\")
    return _ESCAPE.sub(lambda escape: _ESCAPED[escape[1]], found[1])
