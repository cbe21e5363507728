"""From what a browser sends to the words for a kernel's proxy: nothing else than a size gets through."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.command.command_line import parse_options
from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.gpu_request import GpuRequest
from jupyter_ext.server.errors import WrongRequest
from jupyter_ext.server.kernel_words import (
    ACTIONS,
    LARGEST_BODY,
    question,
    read_body,
    request_words,
    size_words,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(["gpus", "partial", "memory_mib", "now", "filters", "servers", "words", "x"])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "request -n 1 -p 1"),
        ({"gpus": 2}, "request -n 2 -p 1"),
        ({"gpus": 1, "partial": 0.5}, "request -n 1 -p 0.5"),
        ({"gpus": 1, "partial": 1}, "request -n 1 -p 1"),
        ({"gpus": 1, "partial": None, "memory_mib": 8192}, "request -n 1 -m 8192"),
        ({"gpus": 1, "partial": 0.5, "memory_mib": None, "now": False}, "request -n 1 -p 0.5"),
        ({"gpus": 1, "partial": 0.5, "now": True}, "request -n 1 -p 0.5 --now -y"),
    ],
)
def test_a_size_becomes_the_words_of_the_command(body: dict[str, Any], words: str) -> None:
    assert question("request", body) == {"words": words}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"gpus": 0}, 'Invalid value "0" for gpus: must be a whole number from 1 to 1024'),
        ({"gpus": "1; rm -rf ~"}, 'Invalid value "1; rm -rf ~" for gpus: must be a whole number'),
        ({"gpus": True}, 'Invalid value "true" for gpus: must be a whole number'),
        ({"partial": 1.5}, 'Invalid value "1.5" for partial: must be greater than 0.0 and at most 1.0'),
        ({"partial": 0.5, "memory_mib": 8192}, "give either a share (-p) or an amount of memory"),
        ({"memory_mib": 8}, 'Invalid value "8" for memory_mib: must be at least 256 MiB'),
    ],
)
def test_a_size_that_cannot_be_is_told_with_what_is_allowed(body: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        request_words(body)
    assert told in caught.value.user_message


@pytest.mark.parametrize(
    ("action", "body", "told"),
    [
        (
            "request",
            {"filters": ["a=b"]},
            '"filters" is not a field of request; the fields are: gpus, partial,',
        ),
        ("request", {"now": "yes"}, '"now" is "yes"; it must be true or false.'),
        ("release", {"now": True}, '"now" is not a field of release; the fields are: none.'),
    ],
)
def test_a_field_that_there_is_not_is_named(action: str, body: dict[str, Any], told: str) -> None:
    with pytest.raises(WrongRequest) as caught:
        question(action, body)
    assert told in caught.value.message
    assert caught.value.next_step


def test_the_other_actions_are_fixed_words() -> None:
    asked = {action: question(action, {}) for action in ACTIONS if action != "request"}
    assert asked == {
        "acquire": {"words": "acquire"},
        "release": {"words": "release -y"},
        "cancel": {"words": "cancel"},
        "keep": {"do": "keep"},
    }


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"1",
        b"{",
        b"\xff",
        b'{"gpus": NaN}',
        b"[" * 4000,
        b'{"gpus": ' + b"9" * 5000 + b"}",
        b"{}" + b" " * LARGEST_BODY,
    ],
)
def test_a_body_that_is_no_small_object_is_refused(body: bytes) -> None:
    with pytest.raises(WrongRequest):
        read_body(body)


def test_an_empty_body_is_an_empty_object() -> None:
    assert read_body(b"") == read_body(b" \n") == read_body(b"{}") == {}


@given(st.dictionaries(FIELDS, JSON, max_size=4) | JSON)
def test_whatever_is_sent_becomes_a_size_or_a_refusal(sent: Any) -> None:
    try:
        words = request_words(read_body(json.dumps(sent).encode()))
    except (WrongRequest, InvalidRequest):
        return
    flags = {"request", "-n", "-p", "-m", "--now", "-y"}
    assert all(word in flags or word.replace(".", "").isdigit() for word in words.split(" "))


@given(
    st.builds(
        GpuRequest,
        st.integers(1, 1024),
        st.none() | st.floats(min_value=0, max_value=1, exclude_min=True),
    )
    | st.builds(GpuRequest, st.integers(1, 1024), st.none(), st.integers(256, 1 << 20))
)
def test_the_words_ask_for_just_that_whatever_was_chosen_before(size: GpuRequest) -> None:
    before = GpuRequest(3, 0.25, None, (("a", "b"),))
    read, rest = parse_options(shlex.split(size_words(size)), base=before, units=True)
    assert rest == []
    assert GpuRequest(read.gpus, read.partial, read.memory_mib).same_as(size)
