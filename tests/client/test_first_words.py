"""When a handshake, or a request, can begin."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_client.listening.first_words import is_whole_head, is_whole_hello


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
            incoming, outgoing, server_hostname="a"
        ).do_handshake()
    return outgoing.read()


def test_a_hello_is_whole_with_its_last_byte() -> None:
    hello = client_hello()
    assert [length for length in range(1, len(hello)) if is_whole_hello(hello[:length])] == []
    assert is_whole_hello(hello)
    assert is_whole_hello(hello + b"more")


@pytest.mark.parametrize("said", [b"G", b"GET / HTTP/1.1", b"\x80\x2e\x01", b"\x16\x03\x01\xff\xff"])
def test_what_is_no_hello_is_not_waited_for(said: bytes) -> None:
    assert is_whole_hello(said)


@given(st.binary(min_size=1, max_size=50))
def test_any_bytes_are_whole_or_not(said: bytes) -> None:
    assert is_whole_hello(said) in (True, False)


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n", b"\r\n\n", b"\n\r\n"])
def test_a_head_ends_with_an_empty_line(end: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: a" + end
    assert [length for length in range(1, len(head)) if is_whole_head(head[:length])] == []
    assert is_whole_head(head + b"body")
