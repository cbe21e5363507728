"""YAML as an admin writes it, every problem one clear line, every entry with its place; and our own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bitfusion_client.errors import BitfusionError
from jupyter_ext.spawner.wrong_file import WrongFile

if TYPE_CHECKING:
    import yaml

LINE = 110  # characters, of what is written
LARGEST_FILE = 1 << 20  # bytes; what a ConfigMap can hold
MOST_ENTRIES = 1_000_000  # of mappings, merged ones counted in each; a list of sizes has some hundreds
MERGE = "tag:yaml.org,2002:merge"

TOO_LARGE = "is larger than 1 MiB"
TOO_MANY_MERGED = "merges mappings (<<) into more than can be read"


class NoYaml(BitfusionError):
    """PyYAML is not installed."""

    headline = "PyYAML, which reads and checks these files, is missing."
    next_step = "pip install PyYAML"


class Document:
    """One YAML document: `data` as plain Python values, `text` it was read from, `node` as PyYAML has it."""

    def __init__(self, source: str, text: str, data: object, node: yaml.Node | None) -> None:
        self.source = source
        self.text = text
        self.data = data
        self.node = node

    def line(self, *path: str | int) -> int:
        """The line (from 1) where the entry under these keys and indices starts; 1 if there is none."""
        node = self.node
        line = 1 if node is None else node.start_mark.line + 1
        for step in path:
            found = child(node, step)
            if found is None:
                return line
            key, node = found
            line = key.start_mark.line + 1
        return line


def read_document(path: str) -> Document:
    """The one document of a file. Raises WrongFile, NoYaml, OSError."""
    with open(path, "rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise WrongFile(os.path.basename(path), "", None, TOO_LARGE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise WrongFile(os.path.basename(path), "", None, "is not text in UTF-8") from None
    return parse_document(text, os.path.basename(path))


def parse_document(text: str, source: str) -> Document:
    """The document of a text; `source` is what messages call it. Raises WrongFile, NoYaml."""
    try:
        import yaml
    except ImportError:
        raise NoYaml from None
    loader = None
    try:
        # the loader in Python: its marks are positions in `text`
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None:
            for key in _repeated_keys(node):
                place = f"line {key.start_mark.line + 1}:"
                raise WrongFile(source, place, key.value, "is given twice")
            if _merged(node) > MOST_ENTRIES:
                raise WrongFile(source, "", None, TOO_MANY_MERGED)
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}:" if mark else ""
        problem = error.problem or error.context or "it cannot be read"
        raise WrongFile(source, place, _line_of(text, mark), f"is not YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        raise WrongFile(
            source, "", None, f"has a character that YAML forbids: {error.character:#x}"
        ) from None
    except (ValueError, OverflowError, LookupError, AttributeError) as error:  # of a tag such as !!bool
        raise WrongFile(source, "", None, f"has a value that cannot be read: {error}") from None
    except RecursionError:
        raise WrongFile(source, "", None, "is nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    return Document(source, text, data, node)


def child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The key and the value under a mapping's key or a list's index; of a list both are the item."""
    import yaml

    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and 0 <= step < len(node.value):
        return node.value[step], node.value[step]
    # Of one that is merged (<<) and the mapping's own, which comes later, its own counts.
    for key, value in reversed(node.value) if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode) and key.value == step:
            return key, value
    return None


def nodes(root: yaml.Node) -> Iterator[yaml.Node]:
    """All nodes, those with aliases once."""
    import yaml

    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]


def yaml_text(value: object) -> str:
    """The YAML of mappings, lists and plain values, keys in their order; no object may stand in it twice."""
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=LINE)
    assert isinstance(text, str)
    return text


def written_from(source: str, command: str) -> str:
    """The first comment of a file that `command` has written from the list of sizes `source`."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in source)
    return f"# Written by `kubeflow-bitfusion {command}` from {shown}: edit that list and run it again."


def _repeated_keys(root: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Keys that a mapping has twice: YAML forbids them, PyYAML silently takes the last."""
    import yaml

    for node in nodes(root):
        names = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            if (key.tag, key.value) in names:
                yield key
            names.add((key.tag, key.value))


def _merged(root: yaml.Node) -> int:
    """How many entries the mappings have with those that they merge (``<<``), which PyYAML copies."""
    import yaml

    counted: dict[int, int] = {}

    def entries(mapping: yaml.MappingNode) -> int:
        if id(mapping) not in counted:
            counted[id(mapping)] = 0  # for one that merges itself
            found = 0
            for key, value in mapping.value:
                if key.tag == MERGE:
                    merged = value.value if isinstance(value, yaml.SequenceNode) else [value]
                    found += sum(entries(node) for node in merged if isinstance(node, yaml.MappingNode))
                else:
                    found += 1
            counted[id(mapping)] = found
        return counted[id(mapping)]

    for node in nodes(root):
        if isinstance(node, yaml.MappingNode):
            entries(node)
    return sum(counted.values())


def _line_of(text: str, mark: yaml.Mark | None) -> str | None:
    lines = text.splitlines()
    return lines[mark.line].strip() or None if mark is not None and mark.line < len(lines) else None
