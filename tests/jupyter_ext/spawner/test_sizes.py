"""sizes.yaml: what is read; every mistake is one line with file, entry, value and what is allowed."""

from __future__ import annotations

import string
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.kubernetes.request import request_from_kubernetes
from bitfusion_client.request.gpu_request import GpuRequest
from jupyter_ext.spawner.sizes import SizeList, Vendor, example, parse_sizes
from jupyter_ext.spawner.wrong_file import WrongFile
from jupyter_ext.spawner.yaml_document import parse_document


def read(text: str) -> SizeList:
    return parse_sizes(parse_document(text, "sizes.yaml"))


def problem(text: str) -> str:
    """What is wrong with a file, "" if nothing."""
    try:
        read(text)
    except WrongFile as error:
        return error.user_message
    return ""


def test_the_example_has_whole_gpus_shares_and_memory() -> None:
    sizes = read(example())
    assert [(size.label, size.key) for size in sizes.sizes] == [
        ("BITFUSION", "bitfusion.io/gpu-amount"),
        ("BITFUSION 50 %", "bitfusion.io/gpu-50"),
        ("BITFUSION 25 %", "bitfusion.io/gpu-25"),
        ("BITFUSION 8 GiB", "bitfusion.io/gpu-8gib"),
    ]
    assert sizes.default is None
    assert sizes.other_vendors is None


def test_other_vendors_and_the_default_are_read() -> None:
    sizes = read(
        "sizes:\n- {label: B, share: 50, default: true, gpus: 2}\nother_vendors:\n"
        "- {label: NVIDIA, key: nvidia.com/gpu}\n- {label: MIG, key: nvidia.com/mig-1g.5gb}\n"
    )
    assert sizes.default is not None
    assert sizes.default.request == GpuRequest(2, 0.5)
    assert sizes.other_vendors == (Vendor("NVIDIA", "nvidia.com/gpu"), Vendor("MIG", "nvidia.com/mig-1g.5gb"))
    assert read("sizes: [{label: B}]\nother_vendors: []").other_vendors == ()


@pytest.mark.parametrize(
    ("size", "key"),
    [
        ("", "gpu-amount"),
        ("share: 100 %", "gpu-amount"),
        ("share: 1 %", "gpu-1"),
        ("share: 33%", "gpu-33"),
        ("share: ' 50 % '", "gpu-50"),
        ("share: 50", "gpu-50"),
        ("share: '50'", "gpu-50"),
        ("memory: 8Gi", "gpu-8gib"),
        ("memory: 8192Mi", "gpu-8gib"),
        ("memory: 8 GiB", "gpu-8gib"),
        ("memory: 8000M", "gpu-7629mib"),
        ("memory: 1Ti", "gpu-1024gib"),
        ("number: 1", "gpu-amount"),
        ("number: 3", "gpu-3x100"),
        ("number: 3\n  share: 50 %", "gpu-3x50"),
        ("number: 3\n  share: 100 %", "gpu-3x100"),
        ("number: 3\n  memory: 8Gi", "gpu-3x8gib"),
        ("number: 1024\n  memory: 8000M", "gpu-1024x7629mib"),
    ],
)
def test_a_size_has_one_key_that_says_it(size: str, key: str) -> None:
    found = read("sizes:\n- label: B\n" + ("  " + size if size else "")).sizes[0]
    assert found.key == "bitfusion.io/" + key
    assert request_from_kubernetes({found.key: "1"}) == found.request


FIRST = "sizes.yaml, size 1 (line 2)"
SECOND = "sizes.yaml, size 2 (line 4)"
OTHER = "sizes.yaml, other vendor 1 (line 4)"
SHARE = "must be a whole number of percent from 1 % to 100 %"
MEMORY = "must be an amount of memory with its unit, at least 1 MiB, such as 8Gi or 8000Mi"
LABEL = "must be one line of text, at most 60 characters"
QUOTES = f"{LABEL}; YAML does not read this as text: put it in quotes"
GPUS = "must be a whole number from 1 to 1024"
FIELDS = "is not a field; the fields are label, number, share, memory, default, gpus"
MAPPING = "must be a mapping with these fields:"
EITHER = "cannot be combined with share: a size is either a share or an amount of memory"
ONE_DEFAULT = "can be true for only one size; it already is for size 1 (line 2)"
ONCE = "the form can offer it only once"
KEY = "must be the name of a resource with its domain, such as nvidia.com/gpu"
OURS = "belongs to Bitfusion; give a share or memory under sizes instead"
PAIR = (
    "cannot be used in the form, whose notebook list fails with error 500 on this key; give a share or "
    "memory under sizes instead"
)
ONE = "sizes:\n- label: B\n  "
VENDOR = "sizes:\n- label: B\nother_vendors:\n- label: V\n  key: "

NO_MONTH = "month must be in 1..12" + (", not 99" if sys.version_info >= (3, 14) else "")
MISTAKES = {
    ONE + "share: 0 %": f'{FIRST}: share "0 %" {SHARE}',
    ONE + "share: 101 %": f'{FIRST}: share "101 %" {SHARE}',
    ONE + "share: 0.5": f'{FIRST}: share "0.5" {SHARE}',
    ONE + "share: 33.3 %": f'{FIRST}: share "33.3 %" {SHARE}',
    ONE + "share: half": f'{FIRST}: share "half" {SHARE}',
    ONE + "share: true": f'{FIRST}: share "true" {SHARE}',
    ONE + "share: -50": f'{FIRST}: share "-50" {SHARE}',
    ONE + "share:": f"{FIRST}: share {SHARE}",
    ONE + "share: [50]": f"{FIRST}: share (a list) {SHARE}",
    ONE + "share: " + "5" * 99: f'{FIRST}: share "{"5" * 59}…" {SHARE}',
    ONE + "memory: 8": f'{FIRST}: memory "8" {MEMORY}',
    ONE + "memory: '8192'": f'{FIRST}: memory "8192" {MEMORY}',
    ONE + "memory: 0Gi": f'{FIRST}: memory "0Gi" {MEMORY}',
    ONE + "memory: 8 GPUs": f'{FIRST}: memory "8 GPUs" {MEMORY}',
    ONE + "memory: 9Ei": f'{FIRST}: memory "9Ei" {MEMORY}',
    ONE + "share: 50 %\n  memory: 8Gi": f'{FIRST}: memory "8Gi" {EITHER}',
    ONE + "gpus: 0": f'{FIRST}: gpus "0" {GPUS}',
    ONE + "gpus: two": f'{FIRST}: gpus "two" {GPUS}',
    ONE + "gpus: true": f'{FIRST}: gpus "true" {GPUS}',
    ONE + "gpus:": f"{FIRST}: gpus {GPUS}",
    **{
        ONE + f"number: {value}": f'{FIRST}: number "{shown}" {GPUS}'
        for value, shown in (("0", "0"), ("1025", "1025"), ("1.5", "1.5"), ("3x", "3x"), ("true", "true"))
    },
    ONE + "number:": f"{FIRST}: number {GPUS}",
    ONE + "gpus: 1025": f'{FIRST}: gpus "1025" {GPUS}',
    ONE + "number: 400\n  gpus: 4": (f'{FIRST}: gpus "4" makes more than 1024 GPUs with this size\'s number'),
    ONE + "number: 3\n  memory: 9Ei": f'{FIRST}: memory "9Ei" {MEMORY}',
    ONE + "number: 3\n- label: C\n  number: 3\n  share: 100 %": (
        f'{SECOND}: "C" has the same size as size 1 (line 2): bitfusion.io/gpu-3x100; {ONCE}'
    ),
    ONE + "default: 1": f'{FIRST}: default "1" must be true or false',
    ONE + "default: true\n- {label: C, share: 5, default: true}": f'{SECOND}: default "true" {ONE_DEFAULT}',
    ONE + "shares: 50 %": f'sizes.yaml, size 1 (line 3): "shares" {FIELDS}',
    ONE + "8: 8": f'{FIRST}: "8" {FIELDS}',
    "sizes:\n- BITFUSION": f'{FIRST}: "BITFUSION" {MAPPING} label, number, share, memory, default, gpus',
    "sizes:\n- share: 50 %": f"{FIRST} has no label",
    "sizes:\n- label: 8": f'{FIRST}: label "8" {QUOTES}',
    "sizes:\n- label: yes": f'{FIRST}: label "true" {QUOTES}',
    "sizes:\n- label: ' '": f'{FIRST}: label "" {LABEL}',
    'sizes:\n- label: "a\\nb"': f'{FIRST}: label "a b" {LABEL}',
    "sizes:\n- label: " + "x" * 61: f'{FIRST}: label "{"x" * 59}…" {LABEL}',
    "sizes:\n- label: B\n  gpus: 1\n- label:  b\n  share: 5": (
        f'{SECOND}: label "b" is also the label of size 1 (line 2); users could not tell them apart'
    ),
    ONE + "memory: 8Gi\n- label: C\n  memory: 8192Mi": (
        f'{SECOND}: "C" has the same size as size 1 (line 2): bitfusion.io/gpu-8gib; {ONCE}'
    ),
    ONE + "share: 50 %\n- {label: C, share: 50 %, gpus: 3}": (
        f'{SECOND}: "C" has the same size as size 1 (line 2): bitfusion.io/gpu-50; {ONCE}; '
        "write number instead of gpus to make it a size of its own"
    ),
    ONE + "gpus: 1\n- label: C\n  share: 100 %": (
        f'{SECOND}: "C" has the same size as size 1 (line 2): bitfusion.io/gpu-amount; {ONCE}'
    ),
    "": f"sizes.yaml: {MAPPING} sizes, other_vendors",
    "- label: B": f"sizes.yaml: (a list) {MAPPING} sizes, other_vendors",
    "size: []": 'sizes.yaml, line 1: "size" is not a field; the fields are sizes, other_vendors',
    "other_vendors: []": "sizes.yaml, sizes: must be a list",
    "sizes: {}": "sizes.yaml, sizes: (a mapping) must be a list",
    "sizes: []": "sizes.yaml, sizes must have at least one size",
    VENDOR + "bitfusion.io/gpu-memory": f'{OTHER}: key "bitfusion.io/gpu-memory" {PAIR}',
    VENDOR + "bitfusion.io/gpu-percent": f'{OTHER}: key "bitfusion.io/gpu-percent" {PAIR}',
    VENDOR + "bitfusion.io/gpu-50": f'{OTHER}: key "bitfusion.io/gpu-50" {OURS}',
    VENDOR + "bitfusion.io/gpu": f'{OTHER}: key "bitfusion.io/gpu" {OURS}',
    VENDOR + "nvidia": f'{OTHER}: key "nvidia" {KEY}',
    VENDOR + "'a b/c'": f'{OTHER}: key "a b/c" {KEY}',
    VENDOR + "8": f'{OTHER}: key "8" {KEY}',
    "sizes:\n- label: B\nother_vendors:\n- label: V": f"{OTHER} has no key",
    VENDOR + "a/b\n- label: W\n  key: a/b": (
        f'sizes.yaml, other vendor 2 (line 6): "W" has the same key as other vendor 1 (line 4): a/b; {ONCE}'
    ),
    ONE + "share: 5\n  share: 6": 'sizes.yaml, line 4: "share" is given twice',
    "sizes:\n- label: B: C": (
        'sizes.yaml, line 2: "- label: B: C" is not YAML: mapping values are not allowed here'
    ),
    "a: 1\n---\nb: 2": 'sizes.yaml, line 2: "---" is not YAML: but found another document',
    "sizes: 2026-99-99": f"sizes.yaml: has a value that cannot be read: {NO_MONTH}",
    "sizes: !!bool x": "sizes.yaml: has a value that cannot be read: 'x'",
    "sizes: !!int ''": "sizes.yaml: has a value that cannot be read: string index out of range",
    "? [a]\n: 1": 'sizes.yaml, line 1: "? [a]" is not YAML: found unhashable key',
    "\x00": "sizes.yaml: has a character that YAML forbids: 0x0",
    "[" * 3000: "sizes.yaml: is nested too deeply",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_every_mistake_is_one_line_with_file_entry_value_and_what_is_allowed(text: str) -> None:
    assert problem(text) == MISTAKES[text]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("sizes: [", 'sizes.yaml, line 1: "sizes: [" is not YAML: '),
        (
            "sizes: !!python/name:os.system",
            'sizes.yaml, line 1: "sizes: !!python/name:os.system" is not YAML: ',
        ),
    ],
)
def test_what_is_not_yaml_is_told_with_its_line(text: str, start: str) -> None:
    assert problem(text).startswith(start)


def test_an_alias_that_contains_itself_ends() -> None:
    assert problem("sizes: &a\n- *a").startswith("sizes.yaml, size 1 (line 1): (a list) must be a mapping")


def test_mappings_that_are_merged_a_billion_times_are_not_merged() -> None:
    lines = ["a0: &a0 {x: 1}"] + [
        f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}" for level in range(1, 10)
    ]
    assert problem("\n".join(lines)) == "sizes.yaml: merges mappings (<<) into more than can be read"
    assert problem("sizes:\n- &a {label: A, share: 50}\n- {<<: *a, <<: *a, label: B, share: 25}") == ""
    assert problem("sizes:\n- &a {<<: *a, label: A}") == ""


def test_a_hundredfold_alias_is_neither_expanded_nor_printed() -> None:
    lines = ["a0: &a0 [x, x]"] + [
        f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, 60)
    ]
    assert problem("\n".join(lines)).startswith('sizes.yaml, line 1: "a0" is not a field')
    # ten levels are a thousand words, sixty would not fit into any machine
    assert problem("\n".join([*lines[:10], "sizes: *a9"])).startswith(
        'sizes.yaml, line 1: "a0" is not a field'
    )


LABELS = st.text(string.ascii_letters + " %½×é", min_size=1, max_size=60).filter(lambda text: text.strip())
SIZES: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.just({}),
    st.integers(1, 100).map(lambda share: {"share": f"{share} %"}),
    st.integers(1, 1 << 20).map(lambda mib: {"memory": f"{mib}Mi"}),
)
NUMBERS: st.SearchStrategy[dict[str, object]] = st.one_of(
    st.just({}), st.integers(1, 341).map(lambda number: {"number": number})
)
NUMBERED = st.builds(lambda size, number: {**size, **number}, SIZES, NUMBERS)


@given(st.lists(st.tuples(LABELS, NUMBERED), min_size=1, max_size=6))
def test_what_is_read_is_what_was_written(entries: list[tuple[str, dict[str, str]]]) -> None:
    data = {"sizes": [{"label": label, **size} for label, size in entries]}
    text = yaml.safe_dump(data, allow_unicode=True)
    wrong = problem(text)
    if wrong:
        assert "has the same size as" in wrong or "users could not tell them apart" in wrong
        return
    sizes = read(text)
    assert [size.label for size in sizes.sizes] == [label.strip() for label, _ in entries]
    for size in sizes.sizes:
        assert request_from_kubernetes({size.key: "3"}) == GpuRequest(
            3 * size.number, size.request.partial, size.request.memory_mib
        )


WORDS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.dates(),
    st.binary(max_size=4),
)
TREES = st.recursive(
    WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "sizes",
                    "other_vendors",
                    "label",
                    "share",
                    "memory",
                    "number",
                    "gpus",
                    "default",
                    "key",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(TREES)
def test_any_yaml_is_a_list_of_sizes_or_one_clear_line(tree: object) -> None:
    for data in (
        tree,
        {"sizes": tree},
        {"sizes": [tree]},
        {"sizes": [{"label": "B"}], "other_vendors": [tree]},
    ):
        wrong = problem(yaml.safe_dump(data))
        assert "\n" not in wrong
        assert not wrong or wrong.startswith("sizes.yaml")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    assert "\n" not in problem(text)
