"""JSON text without importing `json`, which costs 8 ms because it imports `re`: its encoder is a C module."""

from __future__ import annotations


def dumps(obj: object) -> str:
    """The value as `json.dumps` writes it."""
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:  # an interpreter without the C module
        import json

        return json.dumps(obj)
    encode = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encode(obj, 0))


def _refuse(obj: object) -> object:
    raise TypeError(f"Object of type {type(obj).__name__} is not JSON serializable")
