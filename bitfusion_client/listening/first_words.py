"""Whether the first words of a connection are whole: before that nothing needs to be done for it. Pure."""

from __future__ import annotations

import re

_HANDSHAKE = 22  # the type of a record, RFC 8446, 5.1
_RECORD_HEADER, _LONGEST_RECORD = 5, 1 << 14  # bytes
_END_OF_HEAD = re.compile(rb"\n\r?\n")


def is_whole_hello(said: bytes) -> bool:
    """Whether a TLS handshake can begin: the first record is there, or what is none and will be refused."""
    length = int.from_bytes(said[3:5], "big")
    if said[0] != _HANDSHAKE or length > _LONGEST_RECORD:
        return True
    return len(said) >= _RECORD_HEADER + length


def is_whole_head(said: bytes) -> bool:
    """Whether the head of an HTTP request is there."""
    return _END_OF_HEAD.search(said) is not None
