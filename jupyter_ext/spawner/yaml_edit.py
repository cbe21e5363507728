"""One change of a YAML file that somebody else wrote: whatever its style, all other words stay as they are.

PyYAML's events say where each value stands, so nothing is dumped anew, which would change quotes and line
breaks everywhere. What comes out is read back: data that differ elsewhere are no result. They do where the
changed place is shared by anchor and alias; then the aliases are written out first, and whoever asked is told
which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import LARGEST_FILE, Document, child, nodes, parse_document

if TYPE_CHECKING:
    import yaml

Path = Sequence[str]
"""Keys of mappings, from the top of the file."""


class CannotEdit(Exception):
    """The file is written in a way in which the change would touch more than it should."""


class Edited(NamedTuple):
    """The new text. `aliases` were written out: each as it stood, with its line."""

    text: str
    aliases: tuple[str, ...] = ()


def put(document: Document, path: Path, value: object, block: Sequence[str]) -> Edited:
    """Give the mapping at `path[:-1]` this value under the last key: in the old one's place, or at its end.

    `value` is what JSON can hold, `block` the lines of key and value in a file of blocks, where these begin.
    Raises CannotEdit.
    """
    *parents, key = path

    def change(now: Document, parts: list[_Part]) -> _Change:
        mapping, place = _written(now, parts, parents, "mapping")
        whole = parts[place]
        pair = child(mapping, key)
        at = None if pair is None else _index(parts, pair[0].start_mark.index, "scalar")
        if at is not None and parts[at].parent != place:
            at = None  # it comes from a mapping that is merged (<<) into this one
        if whole.flow:
            if at is not None:
                return _Change(parts[at + 1].start, parts[at + 1].end, json_text(value))
            more = ", " if whole.filled else ""
            return _Change(whole.inside, whole.inside, f"{json_text(key)}: {json_text(value)}{more}")
        line_end, indent = _line_end(now.text), " " * whole.column
        lines = (line_end + indent).join(block)
        if at is not None:
            return _Change(parts[at].start, _content_end(now.text, parts, at + 1), lines)
        end = _content_end(now.text, parts, place)
        return _Change(end, end, line_end + indent + lines)

    return _edited(document, _with(document.data, path, value), change)


def put_first(document: Document, path: Path, item: str) -> Edited:
    """Give the list at `path` a new first item. Raises CannotEdit."""

    def change(now: Document, parts: list[_Part]) -> _Change:
        whole = parts[_written(now, parts, path, "list")[1]]
        start, lead = whole.inside, now.text[whole.inside - whole.column : whole.inside]
        gap = _line_end(now.text) + " " * whole.column
        if not whole.flow:
            return _Change(start, start, f"- {plain_text(item)}{gap}")
        if not whole.filled:
            return _Change(start, start, json_text(item))
        return _Change(start, start, f"{json_text(item)},{' ' if lead.strip() else gap}")

    items = _at(document.data, path)
    return _edited(document, _with(document.data, path, [item, *items]), change)


def take_out(document: Document, path: Path, index: int) -> Edited:
    """Take one item out of the list at `path`; of a list of blocks its whole line. Raises CannotEdit."""

    def change(now: Document, parts: list[_Part]) -> _Change:
        place = _written(now, parts, path, "list")[1]
        whole, own = parts[place], [part for part in parts if part.parent == place]
        if len(own) == 1:
            # deeper than its key, in whose column a list of blocks may stand
            none = "[]" if whole.flow else "  []"
            return _Change(whole.start, _content_end(now.text, parts, place), none)
        if not whole.flow:
            start = now.text.rfind("\n", 0, own[index].start) + 1
            return _Change(start, now.text.find("\n", start) + 1 or len(now.text), "")
        if index + 1 < len(own):
            return _Change(own[index].start, own[index + 1].start, "")
        return _Change(own[index - 1].end, own[index].end, "")

    items = list(_at(document.data, path))
    del items[index]
    return _edited(document, _with(document.data, path, items), change)


def json_text(value: object) -> str:
    """A value as JSON, which is YAML in any place. Raises CannotEdit for what JSON has not."""
    try:
        parts, size = [], 0
        for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
            parts.append(part)
            size += len(part)
            if size > LARGEST_FILE:  # aliases of aliases
                raise CannotEdit
        text = "".join(parts)
        # letters that are not printable must be escaped in both
        return text if text.isprintable() else json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise CannotEdit from None


def plain_text(value: str) -> str:
    """A text as an item of a block, with quotes only where it would be read as something else."""
    try:
        same = parse_document(f"- {value}\n", "").data == [value]
    except WrongFile:
        same = False
    return value if same else json_text(value)


class _Change(NamedTuple):
    start: int
    end: int
    text: str


@dataclass(slots=True)
class _Part:
    """A value as it is written. `anchor` is its name, or the one that an alias has.

    Attributes:
        start: Its first letter, that of an anchor or a tag included.
        end: Behind its last one; a block ends where the next value begins.
        inside: Where the first entry of a mapping or list begins, or would.
        column: In which column that is.
        parent: Which part it is an entry of; -1 for the file's own value.
        last: How many parts there are up to its last one.
    """

    kind: str  # "scalar", "alias", "list", "mapping"
    start: int
    end: int
    anchor: str | None
    parent: int
    flow: bool = False
    filled: bool = False
    inside: int = 0
    column: int = 0
    last: int = 0


def _parts(text: str) -> list[_Part]:
    """All values in the order in which they are written."""
    import yaml

    found: list[_Part] = []
    waiting: list[int] = []
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        start, end = event.start_mark, event.end_mark
        assert start is not None
        assert end is not None
        if isinstance(event, yaml.CollectionEndEvent):
            part = found[waiting.pop()]
            part.end, part.last = end.index, len(found)
        elif isinstance(event, yaml.NodeEvent):
            parent = waiting[-1] if waiting else -1
            if waiting and not found[parent].filled:
                _begin(found[parent], start.index, start.column)
            part = _Part("scalar", start.index, end.index, event.anchor, parent)
            found.append(part)
            part.last = len(found)
            if isinstance(event, yaml.AliasEvent):
                part.kind = "alias"
            elif isinstance(event, yaml.CollectionStartEvent):
                part.kind = "list" if isinstance(event, yaml.SequenceStartEvent) else "mapping"
                part.flow = bool(event.flow_style)
                part.inside, part.column = end.index, end.column
                # None: a list in the column of its key, of which PyYAML has read the first dash
                if part.kind == "list" and event.flow_style is None:
                    part.inside, part.column = end.index - 1, end.column - 1
                waiting.append(len(found) - 1)
    return found


def _begin(part: _Part, index: int, column: int) -> None:
    """The first entry of a mapping or list is there; in a block's list its dash came before it."""
    part.filled = True
    if part.kind == "mapping" or part.flow:
        part.inside, part.column = index, column


def _edited(document: Document, wanted: object, change: Callable[[Document, list[_Part]], _Change]) -> Edited:
    """Make the change, if need be with aliases written out. Raises CannotEdit."""
    now = document
    aliases: list[str] = []
    while True:  # each round leaves fewer aliases
        parts = _parts(now.text)
        at = change(now, parts)
        text = now.text[: at.start] + at.text + now.text[at.end :]
        if _reads_as(text, wanted):
            return Edited(text, tuple(aliases))
        now, more = _written_out(now, parts, at)
        aliases += more


def _reads_as(text: str, wanted: object) -> bool:
    try:
        return parse_document(text, "").data == wanted
    except WrongFile:
        return False


def _written_out(document: Document, parts: list[_Part], at: _Change) -> tuple[Document, list[str]]:
    """The same file, but what its changed place is shared with has a copy of its own. Raises CannotEdit."""
    text, told = document.text, []
    shared = {part.anchor: part for part in parts if part.kind != "alias" and _touches(part, at)}
    for part in reversed(parts):
        if part.kind == "alias" and part.anchor in shared and not at.start <= part.start < at.end:
            copy = json_text(_data(document, shared[part.anchor]))
            text = text[: part.start] + copy + text[part.end :]
            told.append(f"*{part.anchor} (line {document.text.count(chr(10), 0, part.start) + 1})")
    if not told:
        raise CannotEdit
    try:
        return parse_document(text, document.source), told[::-1]
    except WrongFile:
        raise CannotEdit from None


def _touches(part: _Part, at: _Change) -> bool:
    return part.anchor is not None and part.start <= at.end and at.start <= part.end


def _data(document: Document, part: _Part) -> object:
    import yaml

    kinds = {"scalar": yaml.ScalarNode, "list": yaml.SequenceNode, "mapping": yaml.MappingNode}
    for node in nodes(document.node) if document.node is not None else ():
        if node.start_mark.index == part.start and isinstance(node, kinds[part.kind]):
            return yaml.SafeLoader("").construct_document(node)
    raise CannotEdit


def _written(document: Document, parts: list[_Part], path: Path, kind: str) -> tuple[yaml.Node | None, int]:
    """The mapping or list at a path, and which part it is. Raises CannotEdit."""
    node = document.node
    for key in path:
        pair = child(node, key)
        if pair is None:
            raise CannotEdit
        node = pair[1]
    at = None if node is None else _index(parts, node.start_mark.index, kind)
    if at is None:
        raise CannotEdit
    return node, at


def _index(parts: list[_Part], start: int, kind: str) -> int | None:
    return next((at for at, part in enumerate(parts) if (part.start, part.kind) == (start, kind)), None)


def _content_end(text: str, parts: list[_Part], at: int) -> int:
    """The position after the last word of a value and of a comment in the same line.

    A block's own end lies at the next entry, behind comments that belong to that one.
    """
    inner = (part for part in parts[at : parts[at].last] if part.flow or part.kind in ("scalar", "alias"))
    end = max((part.end for part in inner), default=parts[at].start)
    end = len(text[:end].rstrip())
    line_end = min(_find(text, "\r\n", end), _find(text, "\n", end))
    rest = text[end:line_end].strip()
    return line_end if not rest or rest.startswith("#") else end


def _find(text: str, mark: str, start: int) -> int:
    place = text.find(mark, start)
    return place if place >= 0 else len(text)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def _with(data: Any, path: Path, value: object) -> object:
    """The data with this value at a path; what is there already is not changed."""
    if not path:
        return value
    key, *rest = path
    return {**data, key: _with(data.get(key), rest, value)}
