"""Hosts and ports as servers.conf and the commands spell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitfusion_pool.access.addresses import ALLOWED, Address, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:56001", "10.0.0.1", 56001),
        ("pool.example.org", "pool.example.org", 56001),
        ("gpu_1:1", "gpu_1", 1),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
        ("[::1]", "::1", 56001),
    ],
)
def test_an_address_is_read(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", f'wrong address "": {ALLOWED}'),
        ("10.0.0.1:", f'wrong address "10.0.0.1:": {ALLOWED}'),
        ("10.0.0.256", f'wrong address "10.0.0.256": {ALLOWED}'),
        ("1.2.3:5", f'wrong address "1.2.3:5": {ALLOWED}'),
        ("::1", f'wrong address "::1": {ALLOWED}'),
        ("[::1", f'wrong address "[::1": {ALLOWED}'),
        ("[::1]5", f'wrong address "[::1]5": {ALLOWED}'),
        ("[gpu]:1", f'wrong address "[gpu]:1": {ALLOWED}'),
        ("https://pool:1", f'wrong address "https://pool:1": {ALLOWED}'),
        ("a b:1", f'wrong address "a b:1": {ALLOWED}'),
        ("-o:1", f'wrong address "-o:1": {ALLOWED}'),
        ("a..b", f'wrong address "a..b": {ALLOWED}'),
        ("x" * 64, f'wrong address "{"x" * 64}": {ALLOWED}'),
        ("pool:0", 'wrong port in "pool:0": must be 1 to 65535'),
        ("pool:65536", 'wrong port in "pool:65536": must be 1 to 65535'),
        ("pool:+1", 'wrong port in "pool:+1": must be 1 to 65535'),
        ("pool:１", 'wrong port in "pool:１": must be 1 to 65535'),
        ("a:\x1b[2J", 'wrong port in "a:\\x1b[2J": must be 1 to 65535'),
    ],
)
def test_anything_else_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="wrong") as error:
        parse_address(text)
    assert str(error.value) == why


@given(st.text(alphabet="abz019.-_:[]", max_size=30) | st.text(max_size=20))
def test_what_is_read_is_written_and_read_again(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(str(address)) == address
