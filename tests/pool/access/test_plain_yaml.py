"""The YAML of client.yaml and servers.conf: what is read is what YAML means, the rest is refused by line."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfusion_pool.access.plain_yaml import MAX_DEPTH, MAX_LINES, Node, WrongYaml, parse_yaml

SECOND_COLON = "a second colon; such a value must be in quotes"
CLIENT = """\
version: ""
ssl: true
cacertpath: /etc/bitfusion/tls/ca.crt   # of the servers
authconfig:
  enabled: true
  token: 'it''s # no comment'
network: {}
dispatcher:
    rdma:
        hops: 2
    none:
"""


def plain(node: Node) -> object:
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, list):
        return [plain(value) for value in node.value]
    return node.value


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("servers:\n- addresses:\n  - 10.0.0.1:56001\n", {"servers": [{"addresses": ["10.0.0.1:56001"]}]}),
        ("servers:\n  - addresses:\n      - a:1\n", {"servers": [{"addresses": ["a:1"]}]}),
        ("servers:\n- reachable: a:1\n  addresses:\n  - a:1\n- addresses: []\n", None),
        (CLIENT, None),
        ("---\na: 1\r\nb: 2\r\n", {"a": "1", "b": "2"}),
        ('a: "x \\"y\\" \\\\ \\t"   # why\n', {"a": 'x "y" \\ \t'}),
        ("- a\n-\n- b: c\n", ["a", "", {"b": "c"}]),
        ("a: null\nb: ~x\nc: 0x1f\n", {"a": "null", "b": "~x", "c": "0x1f"}),
        ("a: x{y}, [z] &w\n", {"a": "x{y}, [z] &w"}),
        ("a:\n  - b\n\n# c\nd: '' #e\n", {"a": ["b"], "d": ""}),
    ],
)
def test_what_is_read_means_what_yaml_means(text: str, means: object) -> None:
    read = plain(parse_yaml(text))
    assert read == yaml.load(text, yaml.BaseLoader)
    assert means is None or read == means


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "line 1: there is nothing in it"),
        ("# only a comment\n", "line 1: there is nothing in it"),
        ("a: 1\n\tb: 2\n", "line 2: there is a tab; YAML is indented with spaces"),
        ("a: \x1b[2J\n", "line 1: there is a character that cannot be shown"),
        ("a\n", "line 1: not 'key: value', with a space after the colon: a"),
        ("a:1\n", "line 1: not 'key: value', with a space after the colon: a:1"),
        ("a: 1\nb:2\n", "line 2: not 'key: value', with a space after the colon: b:2"),
        ("a: 1\n- b\n", "line 2: a list item where a key is expected: - b"),
        ("a: 1\na: 2\n", "line 2: a is there already, in line 1"),
        ("a: 1\n  b\n", "line 2: a value must be on one line: b"),
        ("a:\n    b: 1\n  c: 2\n", "line 3: indented differently from the lines above: c: 2"),
        ("  a: 1\nb: 2\n", "line 2: indented differently from the lines above: b: 2"),
        ("- a\nb: 2\n", "line 2: indented differently from the lines above: b: 2"),
        ("- - a\n", "line 1: a list in a list on one line: - - a"),
        ("a: *b\n", "line 1: a value that begins with * must be in quotes: *b"),
        ("a: {b: 1}\n", "line 1: a value that begins with { must be in quotes: {b: 1}"),
        ("a: |\n", "line 1: a value that begins with | must be in quotes: |"),
        ("a: b: c\n", "line 1: a second colon; such a value must be in quotes: b: c"),
        ("a: 'b\n", "line 1: the closing ' is missing: 'b"),
        ('a: "b" c\n', 'line 1: there is more text after the closing ": "b" c'),
        ("a: 'b'#c\n", "line 1: there is more text after the closing ': 'b'#c"),
        ('a: "\\x41"\n', "line 1: \\x is not read here; single quotes need no \\"),
        (
            "a: b" + "c" * 99 + ": d\n",
            f"line 1: {SECOND_COLON}: b{'c' * 58}…",
        ),
        ("a: 1\n---\nb: 2\n", "line 2: not 'key: value', with a space after the colon: ---"),
        ("\n" * MAX_LINES + "a: 1", f"line {MAX_LINES + 1}: it has more than {MAX_LINES} lines"),
    ],
)
def test_everything_else_is_refused_by_its_line(text: str, why: str) -> None:
    with pytest.raises(WrongYaml) as error:
        parse_yaml(text)
    assert str(error.value) == why


def test_depth_has_a_bound() -> None:
    def nested(depth: int) -> str:
        return "".join(f"{' ' * level}a:\n" for level in range(depth))

    parse_yaml(nested(MAX_DEPTH))
    with pytest.raises(WrongYaml, match=f"nested more than {MAX_DEPTH} deep"):
        parse_yaml(nested(MAX_DEPTH + 2))


WORDS = ["a", "b", "a-b", "1", "'", '"', "\\", "#", " #", ":", ": ", "-", "- ", "{}", "[]", "x:1", "~", "*"]
TEXTS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["", "- ", "-   ", "a: ", "b: ", "a:", "c :  ", "- a: ", "- b:", "? ", "..."]),
        st.lists(st.sampled_from(WORDS), max_size=4).map("".join),
    ).map(lambda parts: " " * parts[0] + parts[1] + parts[2]),
    max_size=7,
).map("\n".join)


@settings(max_examples=200)
@given(st.one_of(TEXTS, st.text()))
def test_nothing_is_read_otherwise_than_a_yaml_library_reads_it(text: str) -> None:
    try:
        read = parse_yaml(text)
    except WrongYaml:
        return
    assert plain(read) == yaml.load(text, yaml.BaseLoader)


VALUES = st.from_regex(r"[A-Za-z0-9/][A-Za-z0-9./:_=]{0,12}[A-Za-z0-9]", fullmatch=True) | st.just("")
TREES = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner.filter(lambda one: not isinstance(one, list)), min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b-c", "d_1"]), inner, min_size=1)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["servers", "ssl", "x"]), TREES, min_size=1))
def test_what_a_yaml_library_writes_is_read_back(tree: dict[str, object]) -> None:
    assert plain(parse_yaml(yaml.safe_dump(tree, width=10_000))) == tree
