"""Text of others becomes one printable line of limited length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.one_line import LONGEST_LINE, one_line, shown_value, words_of


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    line = one_line(text)
    assert len(line) <= LONGEST_LINE
    assert line.isprintable()


def test_long_text_is_cut_and_says_so() -> None:
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcd", 4) == "abcd"


def test_control_characters_are_written_out() -> None:
    assert one_line("a\r\n\x07b\x1b[31m") == "a \\x07b\\x1b[31m"


def test_values_of_any_type_are_shown() -> None:
    assert shown_value("two\nlines") == "two lines"
    assert shown_value(None) == "null"
    assert (shown_value(True), shown_value(False), shown_value(0.5)) == ("true", "false", "0.5")
    assert shown_value({"a": [None, "ü\x1b"], "b": True}) == '{"a": [null, "ü\\u001b"], "b": true}'
    assert shown_value({"a": {1}}) == "{'a': {1}}"  # nothing that YAML could have said
    assert shown_value([10**6000]) == "a number far too large"


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (OSError(111, "Connection refused"), "Connection refused"),
        (ConnectionResetError(), "connection reset error"),
        (TimeoutError(), "timeout error"),
        (TimeoutError("no handshake within 5 seconds"), "no handshake within 5 seconds"),
        (ValueError("wrong"), "wrong"),
        ("a text", "a text"),
    ],
)
def test_why_something_failed_is_never_empty(why: object, words: str) -> None:
    assert words_of(why) == words
