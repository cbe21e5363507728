"""JSON text without importing `json`, which costs 8 ms because it imports `re`: its C module is enough."""

from __future__ import annotations


def dumps(obj: object) -> str:
    """The value as `json.dumps` writes it."""
    return _encode(obj, ": ", ", ", True)


def compact(obj: object) -> str:
    """The value without blanks.

    Raises:
        ValueError: It contains a number that JSON does not have.
    """
    return _encode(obj, ":", ",", False)


def loads(text: str) -> object:
    """The value in the text.

    Raises:
        ValueError: The text is no JSON; ``NaN`` and the like are none.
        RecursionError: It is nested too deeply.
    """
    stripped = text.strip(" \t\n\r")
    try:
        from _json import make_scanner

        value, end = make_scanner(_ScannerSettings)(stripped, 0)  # type: ignore[arg-type] # wants a JSONDecoder, reads its attributes
        if end == len(stripped):
            return value
    except Exception:
        # no C module, or one of another Python that wants more of it, or no JSON: `json` knows
        pass
    import json

    return json.loads(text, parse_constant=_refuse_constant)


def _encode(obj: object, key_separator: str, item_separator: str, allow_nan: bool) -> str:
    try:
        from _json import encode_basestring_ascii, make_encoder

        encode = make_encoder(
            {}, _refuse, encode_basestring_ascii, None, key_separator, item_separator, False, False, allow_nan
        )
        return "".join(encode(obj, 0))
    except Exception:  # as in `loads`
        import json

        return json.dumps(obj, separators=(item_separator, key_separator), allow_nan=allow_nan)


def _refuse(obj: object) -> object:
    raise TypeError(f"Object of type {type(obj).__name__} is not JSON serializable")


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


class _ScannerSettings:
    """What the scanner of the C module asks a `json.JSONDecoder` for."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None  # from Python 3.15 on
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)
