"""JSON text: the same as the standard encoder writes, and the standard decoder reads."""

from __future__ import annotations

import _json
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bitfusion_pool
from bitfusion_pool.json_text import compact, dumps, loads

SIMPLE = st.none() | st.booleans() | st.integers() | st.text(max_size=20)
VALUES = st.lists(st.dictionaries(st.text(max_size=5), SIMPLE | st.floats(allow_nan=False), max_size=3))


@settings(max_examples=50)
@given(st.lists(st.dictionaries(st.text(max_size=5), SIMPLE, max_size=3), max_size=3))
def test_the_text_is_that_of_the_standard_encoder(value: object) -> None:
    assert dumps(value) == json.dumps(value)
    assert compact(value) == json.dumps(value, separators=(",", ":"))


def refuse(name: str) -> None:
    raise ValueError(name)


@settings(max_examples=50)
@given(VALUES.map(json.dumps) | st.text(alphabet='{}[]":,\\u0019truefalsn -.eE\n\t', max_size=12))
@example("")
@example(" [1] ")
@example("[1]2")
@example("\v1")
@example('"\n"')
@example("1e999")
def test_it_is_read_as_the_standard_decoder_reads_it(text: str) -> None:
    try:
        expected = json.loads(text, parse_constant=refuse)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  # the words are the caller's
            loads(text)
    else:
        assert loads(text) == expected


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity"])
def test_what_only_python_takes_for_json_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"NaN|Infinity"):
        loads(text)


@pytest.mark.parametrize(("attribute", "read_by_json"), [("array_hook", 0), ("hook_of_tomorrow", 1)])
def test_a_python_whose_c_module_wants_more_is_no_reason_to_fail(
    monkeypatch: pytest.MonkeyPatch, attribute: str, read_by_json: int
) -> None:
    make_scanner, by_json = _json.make_scanner, Mock(wraps=json.loads)

    def newer_scanner(settings: Any) -> Any:
        getattr(settings, attribute)  # that of CPython 3.15 reads `array_hook`
        return make_scanner(settings)

    def newer_encoder(*nine: Any) -> Any:
        raise TypeError("make_encoder() takes exactly 10 arguments (9 given)")

    monkeypatch.setattr(_json, "make_scanner", newer_scanner)
    monkeypatch.setattr(_json, "make_encoder", newer_encoder)
    monkeypatch.setattr(json, "loads", by_json)
    assert loads(' {"a": [1]} ') == {"a": [1]}
    assert by_json.call_count == read_by_json, "what this project knows of is read without importing json"
    assert compact({"a": [1]}) == '{"a":[1]}'


@pytest.mark.parametrize("text", ["", "[1", '{"a" 1}', "[1]2", "NaN", '"\x01"'])
def test_what_is_no_json_is_told_also_where_nothing_has_imported_json(text: str) -> None:
    script = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "from bitfusion_pool.json_text import loads\n"
        "try: loads(sys.argv[2])\n"
        "except ValueError: print('refused')\n"
    )
    root = str(Path(bitfusion_pool.__file__).parent.parent)
    words = [sys.executable, "-I", "-S", "-c", script, root, text]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "refused\n"


def test_a_value_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        dumps({1})
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        compact([float("nan")])
