"""Messages as they travel: what is signed is read again, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_kernel.protocol.wire import DELIMITER, InvalidMessage, Wire, is_type

KEY = b"a secret of both sides"
texts = st.text(max_size=20)
json_objects = st.dictionaries(
    texts, st.recursive(st.none() | st.booleans() | st.integers() | texts, st.lists, max_leaves=5), max_size=4
)
frames_of_noise = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.just(DELIMITER),
        st.sampled_from([b"{}", b"[]", b"1", b"null", b'{"msg_type":1,"msg_id":"a"}', b"\xff", b"[" * 20]),
    ),
    max_size=9,
)


@given(
    json_objects, json_objects, st.lists(st.binary(max_size=8).filter(lambda b: b != DELIMITER), max_size=3)
)
def test_a_built_message_is_read_as_it_was(
    content: dict[str, Any], metadata: dict[str, Any], identities: list[bytes]
) -> None:
    wire = Wire(KEY)
    parent = wire.header("execute_request")
    frames = wire.build("status", content, parent=parent, metadata=metadata, identities=identities)
    message = Wire(KEY).read([*frames, b"buffer"])
    assert (message.content, message.metadata, message.parent_header) == (content, metadata, parent)
    assert (message.identities, message.type, message.buffers) == (identities, "status", [b"buffer"])


@pytest.mark.parametrize("scheme", ["hmac-sha256", "hmac-sha512", "hmac-md5"])
def test_every_signature_scheme_of_hashlib_is_spoken(scheme: str) -> None:
    frames = Wire(KEY, scheme).build("status", {})
    assert Wire(KEY, scheme).read(frames).type == "status"


@pytest.mark.parametrize("scheme", ["hmac-none", "sha256", ""])
def test_an_unknown_signature_scheme_is_named(scheme: str) -> None:
    with pytest.raises(ValueError, match=f"signature scheme '{scheme}' is not known; allowed: hmac-sha256"):
        Wire(KEY, scheme)


@given(st.integers(0, 4), st.binary(min_size=1, max_size=5))
def test_a_change_of_any_signed_part_is_noticed(part: int, extra: bytes) -> None:
    frames = Wire(KEY).build("status", {"execution_state": "idle"})
    frames[1 + part] += extra
    with pytest.raises(InvalidMessage, match="wrong signature"):
        Wire(KEY).read(frames)


def test_another_key_is_refused_and_no_key_accepts_all() -> None:
    frames = Wire(b"another").build("status", {})
    with pytest.raises(InvalidMessage, match="wrong signature"):
        Wire(KEY).read(frames)
    assert Wire(b"").read(frames).type == "status"
    assert Wire(b"").build("status", {})[1] == b""


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_part_that_is_null_is_empty_as_it_is_for_ipykernel(part: int) -> None:
    wire = Wire(KEY)
    frames = wire.build("kernel_info_request", {"a": 1}, parent={"b": 2}, metadata={"c": 3})
    frames[2 + part] = b"null"
    frames[1] = wire.sign(frames[2:])
    message = wire.read(frames)
    parts = [message.header, message.parent_header, message.metadata, message.content]
    assert parts[part] == {}
    assert message.frames[2 + part] == b"null", "the kernel gets what was sent"


@given(frames_of_noise)
def test_noise_raises_invalid_message_only(frames: list[bytes]) -> None:
    for key in (KEY, b""):
        try:
            Wire(key).read(frames)
        except InvalidMessage:
            continue
        assert not key


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (b"\xff", "a part is not JSON"),
        (b"[]", "a part is not a JSON object"),
        (b"{}", "the header names no msg_type and msg_id"),
        (b'{"msg_type": "a", "msg_id": 3}', "the header names no msg_type and msg_id"),
        (b"[" * 100_000, "a part is not JSON"),
    ],
    ids=["bytes", "list", "empty", "number", "deep"],
)
def test_a_signed_header_that_is_none_is_refused(part: bytes, words: str) -> None:
    wire = Wire(KEY)
    parts = [part, b"{}", b"{}", b"{}"]
    with pytest.raises(InvalidMessage, match=words):
        wire.read([DELIMITER, wire.sign(parts), *parts])


def test_frames_without_delimiter_or_too_few_are_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"no <IDS\|MSG> delimiter"):
        Wire(KEY).read([b"a", b"b"])
    with pytest.raises(InvalidMessage, match="fewer than four parts"):
        Wire(KEY).read([DELIMITER, b"", b"{}"])


def test_headers_are_unique_and_dated_in_utc() -> None:
    wire = Wire(KEY, username="ada")
    first, second = wire.header("a"), wire.header("a")
    assert first["msg_id"] != second["msg_id"]
    assert (first["session"], first["username"]) == (wire.session, "ada")
    assert first["date"].endswith("Z")
    assert first["version"].startswith("5.")


@given(frames_of_noise)
def test_looking_at_the_type_of_noise_never_raises(frames: list[bytes]) -> None:
    assert isinstance(is_type(frames, b"status"), bool)


@given(json_objects)
def test_the_type_is_seen_without_parsing(content: dict[str, Any]) -> None:
    frames = Wire(KEY).build("execute_reply", content, identities=[b"x"])
    assert is_type(frames, b"execute_reply")
    assert not is_type(frames, b"status")
    assert json.loads(frames[-1]) == content
