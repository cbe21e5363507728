"""The text of a token: made once, recognised by its form, and stored as a hash only.

``bfpool_``, 256 random bits and a checksum, in letters and digits: a secret scanner finds it by a pattern, a
double click selects it whole, and one that was cut or mistyped is told from one that is not known.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib

PREFIX = "bfpool_"
PATTERN = re.compile(r"bfpool_([0-9A-Za-z]{43})([0-9A-Za-z]{6})")
"""The form, for secret scanners, too."""
SECRET_BYTES = 32

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def new_token() -> str:
    """A token that nobody can guess."""
    secret = _written(int.from_bytes(secrets.token_bytes(SECRET_BYTES), "big"), 43)
    return PREFIX + secret + _checksum(secret)


def is_token(text: str) -> bool:
    """Whether this is a whole token, known or not."""
    found = PATTERN.fullmatch(text)
    return found is not None and _checksum(found[1]) == found[2]


def token_hash(text: str) -> str:
    """What is stored of a token: SHA-256, hexadecimal. 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _checksum(secret: str) -> str:
    return _written(zlib.crc32(secret.encode("ascii")), 6)


def _written(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
