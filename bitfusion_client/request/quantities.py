"""Amounts of memory in MiB, from Kubernetes quantities (``8Gi``, ``8000M``) and from what people write.

Decimal suffixes are decimal and binary ones binary, as everywhere in Kubernetes: ``8000M`` is 8·10⁹ bytes,
7629 MiB, and ``8Gi`` is 8192 MiB. Amounts are rounded down to whole MiB, so that the memory of a whole GPU
never becomes more than the GPU has. VMware's injector passes ``8000M`` on as ``-m 8000``, which the client
reads as MiB; here that is ``8000Mi``.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.request_rules import ALLOWED_GPUS

MIB = 1 << 20
ALLOWED_QUANTITY = "must be an amount of at least 1 MiB, such as 8000Mi, 8Gi or 8G"
ALLOWED_MEMORY_TEXT = "must be an amount of memory, such as 8Gi, 8GB or 8192 (MiB)"
SMALLEST_GPU_MEMORY_MIB = 256
"""Nothing that computes on a GPU starts with less; who asks for less has forgotten the unit."""

_SUFFIXES = {
    "": (1, 1),
    "n": (1, 10**9),
    "u": (1, 10**6),
    "m": (1, 1000),
    "k": (1000, 1),
    "M": (10**6, 1),
    "G": (10**9, 1),
    "T": (10**12, 1),
    "P": (10**15, 1),
    "E": (10**18, 1),
    "Ki": (1 << 10, 1),
    "Mi": (1 << 20, 1),
    "Gi": (1 << 30, 1),
    "Ti": (1 << 40, 1),
    "Pi": (1 << 50, 1),
    "Ei": (1 << 60, 1),
}
_LONGEST = 64
_LARGEST_EXPONENT = 30


def parse_quantity(value: object) -> tuple[int, int]:
    """A Kubernetes quantity (``1``, ``0.5``, ``500m``, ``8Gi``, ``1e3``, a JSON number) as an exact fraction.

    Returns numerator and denominator, not reduced. Raises ValueError.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("not a quantity")
    text = value if isinstance(value, str) else repr(value)
    if not text or len(text) > _LONGEST:
        raise ValueError("not a quantity")
    sign = -1 if text[0] == "-" else 1
    number = text[1:] if text[0] in "+-" else text
    length = 0
    while length < len(number) and number[length] in "0123456789.":
        length += 1
    digits, suffix = number[:length], number[length:]
    whole, _, fraction = digits.partition(".")
    if "." in fraction or not whole + fraction:
        raise ValueError("not a quantity")
    if suffix in _SUFFIXES:
        numerator, denominator = _SUFFIXES[suffix]
    else:
        exponent = _exponent(suffix)
        if not (whole + fraction).strip("0"):
            exponent = 0  # 0 is 0 with any
        elif abs(exponent) > _LARGEST_EXPONENT:
            raise ValueError("exponent out of range")
        numerator, denominator = (10**exponent, 1) if exponent >= 0 else (1, 10**-exponent)
    return sign * int(whole + fraction) * numerator, denominator * 10 ** len(fraction)


def _exponent(suffix: str) -> int:
    digits = suffix[1:].lstrip("+-")
    signs = len(suffix) - 1 - len(digits)
    if suffix[:1] not in ("e", "E") or signs > 1 or not digits.isascii() or not digits.isdigit():
        raise ValueError("unknown suffix")
    return int(suffix[1:])


def is_zero(value: object) -> bool:
    """Whether a quantity is 0, in whatever spelling (``0``, ``0m``, ``0e3``); what is no quantity is not.

    For everything that asks whether a resource is asked for: in Kubernetes 0 of one is none of it.
    """
    if isinstance(value, str) and value[:1] in "123456789":
        return False  # as nearly all are written
    try:
        return parse_quantity(value)[0] == 0
    except ValueError:
        return False


def quantity_to_mib(value: object, field: str = "memory_mib") -> int:
    """Whole MiB of a Kubernetes quantity of bytes, rounded down. Raises InvalidRequest(field)."""
    try:
        numerator, denominator = parse_quantity(value)
    except ValueError:
        raise InvalidRequest(field, value, ALLOWED_QUANTITY) from None
    mib = numerator // (denominator * MIB)
    if mib < 1:
        raise InvalidRequest(field, value, ALLOWED_QUANTITY)
    return mib


def quantity_to_count(value: object, field: str = "gpus") -> int:
    """The whole number, 0 or more, that a Kubernetes quantity stands for. Raises InvalidRequest(field)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _LONGEST:
        return int(value)  # as nearly all are written
    try:
        numerator, denominator = parse_quantity(value)
    except ValueError:
        raise InvalidRequest(field, value, ALLOWED_GPUS) from None
    if numerator < 0 or numerator % denominator:
        raise InvalidRequest(field, value, ALLOWED_GPUS)
    return numerator // denominator


def format_mib(mib: int) -> str:
    """The shortest quantity of an amount in MiB: ``8Gi``, ``8000Mi``."""
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"


def parse_memory(value: object, field: str = "memory") -> int:
    """MiB of what a person wrote in a setting: ``8Gi``, ``8000M``, ``8 GB``, ``8192 MiB`` or ``8192``.

    Numbers without a unit are MiB, as for the client's ``-m``. Raises InvalidRequest(field).
    """
    words = value.split() if isinstance(value, str) else []
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 60:
        words = [str(value)]
    compact = "".join(words)
    if not 1 <= len(words) <= 2:
        raise InvalidRequest(field, value, ALLOWED_MEMORY_TEXT)
    if compact.isascii() and compact.isdigit():
        compact += "Mi"
    elif compact[-1] in "bB" and compact[-2:-1].isalpha():
        compact = compact[:-1]  # GB, GiB
    try:
        return quantity_to_mib(compact, field)
    except InvalidRequest:
        raise InvalidRequest(field, value, ALLOWED_MEMORY_TEXT) from None


def parse_gpu_memory(value: object, field: str = "memory") -> int:
    """The same for the memory of a GPU that a person asks for: too little was meant in another unit.

    Raises InvalidRequest(field), whose `allowed` also says what was probably meant.
    """
    mib = parse_memory(value, field)
    if mib >= SMALLEST_GPU_MEMORY_MIB:
        return mib
    digits = str(value).strip()
    while digits and not digits.isdigit():
        digits = digits[:-1]
    meant = f"{digits}{'Gi' if int(digits) < SMALLEST_GPU_MEMORY_MIB else 'Mi'}" if digits else ""
    if "." in str(value) or not digits.isascii():
        meant = ""
    advice = f"; did you mean {meant}?" if meant else ""
    raise InvalidRequest(field, value, f"must be at least {SMALLEST_GPU_MEMORY_MIB} MiB{advice}")
