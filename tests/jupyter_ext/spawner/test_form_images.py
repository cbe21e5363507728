"""The notebook image in the form's list, in whatever style its file is written; all else stays as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ext.spawner.form_images import add_image
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import Document, parse_document
from tests.jupyter_ext.spawner.spawner_configs import NEWER

NEW = "registry.example.com/team/notebook:0.1.0"
TOLERATIONS = """\
  tolerationGroup:
    value: none
    options:
    - groupKey: gpus
      displayName: Nodes with GPUs
"""


def document(text: str) -> Document:
    return parse_document(text, "spawner_ui_config.yaml")


def added(text: str) -> str:
    return add_image(document(text), NEW).edited.text


def problem(text: str) -> str:
    with pytest.raises(WrongFile) as caught:
        added(text)
    assert "\n" not in caught.value.user_message
    return caught.value.user_message


def wanted(text: str, old: Sequence[object]) -> Any:
    data = yaml.safe_load(text)
    defaults = data["spawnerFormDefaults"]
    image = {**defaults["image"], "options": [NEW, *old]}
    return {**data, "spawnerFormDefaults": {**defaults, "image": image}}


IMAGE = "spawnerFormDefaults:\n  image:\n    value: a:1\n"
STYLES = {
    "as Kubeflow has it": (
        IMAGE + "    options:\n    - a:1   # the small one\n    - b:2\n",
        IMAGE + f"    options:\n    - {NEW}\n    - a:1   # the small one\n    - b:2\n",
    ),
    "another list of that name before": (
        "spawnerFormDefaults:\n"
        + TOLERATIONS
        + "  image:\n    value: a:1\n    options:\n    - a:1\n    - b:2\n",
        "spawnerFormDefaults:\n"
        + TOLERATIONS
        + f"  image:\n    value: a:1\n    options:\n    - {NEW}\n    - a:1\n    - b:2\n",
    ),
    "deeper": (
        "spawnerFormDefaults:\n    image:\n        options:\n          # ours\n"
        "          -   a:1\n          -   b:2\n",
        "spawnerFormDefaults:\n    image:\n        options:\n          # ours\n"
        f"          - {NEW}\n          -   a:1\n          -   b:2\n",
    ),
    "in braces": (
        "spawnerFormDefaults:\n  image: {value: a:1, options: [a:1, b:2]}  # both\n",
        f'spawnerFormDefaults:\n  image: {{value: a:1, options: ["{NEW}", a:1, b:2]}}  # both\n',
    ),
    "in brackets, a line each": (
        IMAGE + "    options: [\n      a:1,  # small\n      b:2,\n    ]\n",
        IMAGE + f'    options: [\n      "{NEW}",\n      a:1,  # small\n      b:2,\n    ]\n',
    ),
    "JSON": (
        '{"spawnerFormDefaults": {"image": {"options": ["a:1", "b:2"], "value": "a:1"}}}',
        f'{{"spawnerFormDefaults": {{"image": {{"options": ["{NEW}", "a:1", "b:2"], "value": "a:1"}}}}}}',
    ),
    "keys and items with quotes, tags and question marks": (
        "'spawnerFormDefaults':\n  ? \"image\"\n  : \"options\": !!seq\n    - !!str a:1\n    - 'b:2'\n",
        f'\'spawnerFormDefaults\':\n  ? "image"\n  : "options": !!seq\n    - {NEW}\n    - !!str a:1\n'
        "    - 'b:2'\n",
    ),
    "no end of the last line": (
        IMAGE + "    options:\n    - a:1\n    - b:2",
        IMAGE + f"    options:\n    - {NEW}\n    - a:1\n    - b:2",
    ),
    "an anchor that nobody uses": (
        IMAGE + "    options: &images\n    - a:1\n    - b:2\n",
        IMAGE + f"    options: &images\n    - {NEW}\n    - a:1\n    - b:2\n",
    ),
    "items that are aliases": (
        "a: &a a:1\nb: &b b:2\n" + IMAGE + "    options: [*a, *b]\n",
        "a: &a a:1\nb: &b b:2\n" + IMAGE + f'    options: ["{NEW}", *a, *b]\n',
    ),
}


@pytest.mark.parametrize(("text", "expected"), STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"], ids=["unix", "windows"])
def test_the_image_comes_first_and_nothing_else_changes(text: str, expected: str, line_end: str) -> None:
    text, expected = text.replace("\n", line_end), expected.replace("\n", line_end)
    result = add_image(document(text), NEW)
    assert result.edited.text == expected
    assert yaml.safe_load(expected) == wanted(text, ["a:1", "b:2"])
    assert result.told == (f"The form's list of images now has {NEW}, before 2 more.",)
    again = add_image(document(expected), NEW)
    assert again.edited.text == expected
    (told,) = again.told
    assert told.startswith(f"The form's list of images already has {NEW} (line ")


SHARED = {
    "the list is another one's, too": (
        IMAGE + "    options: &images [a:1, b:2]\n  imageGroupOne:\n    options: *images  # the same\n",
        ["a:1", "b:2"],
        ("*images (line 6)",),
    ),
    "the list is defined elsewhere": (
        "x-images: &images\n- a:1\n- b:2\n" + IMAGE + "    options: *images\nlast: *images\n",
        ["a:1", "b:2"],
        ("*images (line 7)", "*images (line 8)"),
    ),
    "the field is": (
        "x: &image\n  value: a:1\n  options:\n  - a:1  # one\nspawnerFormDefaults:\n  image: *image\n",
        ["a:1"],
        ("*image (line 6)",),
    ),
    "the field is merged with": (
        "x: &image {value: a:1, options: [a:1]}\nspawnerFormDefaults:\n  image:\n    <<: *image\n"
        "    readOnly: false\n",
        ["a:1"],
        ("*image (line 4)",),
    ),
    "an alias of an alias": (
        "i: &i [a:1]\nx: &image {value: a:1, options: *i}\nspawnerFormDefaults:\n  image: *image\n",
        ["a:1"],
        ("*i (line 2)", "*image (line 4)"),
    ),
    "all is": (
        "x: &all\n  image:\n    options:\n    - a:1\nspawnerFormDefaults: *all\n",
        ["a:1"],
        ("*all (line 5)",),
    ),
}


@pytest.mark.parametrize(("text", "old", "aliases"), SHARED.values(), ids=SHARED)
def test_what_shares_the_list_keeps_its_own(text: str, old: list[object], aliases: tuple[str, ...]) -> None:
    result = add_image(document(text), NEW).edited
    assert yaml.safe_load(result.text) == wanted(text, old)
    assert result.aliases == aliases
    assert [line for line in result.text.splitlines() if "#" in line] == [
        line.replace("*images", '["a:1", "b:2"]') for line in text.splitlines() if "#" in line
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [NEW, "a:1"]),
        ("    options:\n", [NEW, "a:1"]),
        ("    options: ~\n", [NEW, "a:1"]),
        ("    options: []  # none\n", [NEW, "a:1"]),
    ],
    ids=["no list", "nothing in it", "a null", "an empty one"],
)
@pytest.mark.parametrize("after", ["", "    hideRegistry: true\n", "  cpu: {value: '1'}\n"])
def test_a_form_without_a_list_gets_one_with_what_it_preselects(
    options: str, expected: list[str], after: str
) -> None:
    text = IMAGE + options + after
    changed = added(text)
    assert yaml.safe_load(changed) == wanted(text, expected[1:])
    assert changed.startswith(IMAGE)
    assert add_image(document(text), NEW).told == (f"The form's list of images now has {NEW}, with a:1.",)


def test_a_list_of_which_users_cannot_choose_is_told() -> None:
    (_, told) = add_image(document(NEWER.replace("  image:\n", "  image:\n    readOnly: true\n")), NEW).told
    assert told == ('image.readOnly is true in your file: all users get "example.org/jupyter-scipy:v1.8.0".')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "spawner_ui_config.yaml: has no spawnerFormDefaults, so it is not the form's configuration"),
        (
            "a: 1\nspawnerFormDefaults:\n" + TOLERATIONS,
            "spawner_ui_config.yaml, spawnerFormDefaults (line 2) has no `image`, where the form keeps "
            "its list of images; add it with value and options",
        ),
        (
            "spawnerFormDefaults:\n  image:\n",
            "spawner_ui_config.yaml, spawnerFormDefaults (line 1) has no `image`, where the form keeps "
            "its list of images; add it with value and options",
        ),
        (
            "spawnerFormDefaults:\n  image: a:1\n",
            'spawner_ui_config.yaml, image (line 2): "a:1" must be a mapping',
        ),
        (
            IMAGE + "    options: a:1\n",
            'spawner_ui_config.yaml, image.options (line 4): "a:1" must be a list',
        ),
        (
            IMAGE + "    options: &me [a:1, since: 2026-01-01]\nmore: *me\n",
            "spawner_ui_config.yaml, image.options (line 4) shares text with another value, which a "
            "change would alter, too; write it without anchors, aliases and merges (<<)",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line_that_says_why(text: str, message: str) -> None:
    assert problem(text) == message


WORDS = st.text("ab:/.-'\"#&*{[%@ ½😀", min_size=1, max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(WORDS, st.integers(-9, 9), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)


@given(
    before=st.dictionaries(WORDS, VALUES, max_size=3),
    field=st.dictionaries(WORDS, VALUES, max_size=2),
    items=st.lists(st.one_of(WORDS, VALUES), min_size=1, max_size=4),
    shared=st.booleans(),
    flow=st.sampled_from([True, False, None]),
    indent=st.sampled_from([2, 4, 7]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    plain_json=st.booleans(),
    data=st.data(),
)
def test_any_file_gets_the_image_and_keeps_its_data_and_comments(
    before: dict[str, Any],
    field: dict[str, Any],
    items: list[Any],
    shared: bool,
    flow: bool | None,
    indent: int,
    line_end: str,
    plain_json: bool,
    data: st.DataObject,
) -> None:
    image = {**field, "options": items}
    content: dict[str, Any] = {"spawnerFormDefaults": {**before, "image": image}}
    if shared:  # the same objects are written as anchors and aliases
        content = {"x": {"images": items, "field": image}, **content, "y": [items, before]}
    if plain_json:
        text = json.dumps(content, indent=data.draw(st.sampled_from([None, 2])), ensure_ascii=False)
    else:
        text = yaml.safe_dump(
            content, sort_keys=False, default_flow_style=flow, indent=indent, allow_unicode=True, width=2**20
        )
    lines = text.splitlines()
    comments = []
    for at in sorted(data.draw(st.sets(st.integers(0, len(lines)), max_size=3)), reverse=True):
        comments.append(f"# {at}")
        lines.insert(at, comments[-1])
    text = line_end.join(lines) + line_end
    try:
        read = document(text).data
    except WrongFile:
        read = None
    if read != content:  # a comment inside of a text is none
        return
    changed = added(text)
    assert yaml.safe_load(changed) == {
        **content,
        "spawnerFormDefaults": {**before, "image": {**image, "options": [NEW, *items]}},
    }
    assert added(changed) == changed
    assert [line for line in changed.splitlines() if line in comments] == comments[::-1]
