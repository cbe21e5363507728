"""The share of a GPU as people write it: ``0.5``. Who writes ``50%``, ``50``, ``0,5`` or ``1/2`` is told so.

A share is a fraction everywhere, as the client spells it; a percentage is never guessed. Who gives 2 to 9 as
a share means so many GPUs.
"""

from __future__ import annotations

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.request.decimals import plain_number
from bitfusion_client.request.request_rules import ALLOWED_PARTIAL

_MEANT_AS_GPUS = range(2, 10)
_GPUS_INSTEAD_OF = {"-p": "write -n", "--partial": "write --num_gpus", "--share": "write --gpus"}


def parse_share(value: object, flag: str = "") -> float:
    """The share of each GPU's memory, above 0 and at most 1.

    Args:
        value: Text or a number.
        flag: The option that gave it, for the advice; empty for a setting.

    Raises:
        InvalidRequest: Its `allowed` also says how the share that was probably meant is written.
    """
    share = _number(value)
    if 0 < share <= 1:
        return share
    if share in _MEANT_AS_GPUS:
        gpus = plain_number(share)
        advice = f"; for {gpus} GPUs {_GPUS_INSTEAD_OF.get(flag, 'set gpus to')} {gpus}"
    else:
        meant = _meant(value if isinstance(value, str) else plain_number(share) if share else "")
        advice = f"; write {flag} {meant}".replace("  ", " ") if meant else ""
    raise InvalidRequest("partial", value, ALLOWED_PARTIAL + advice, flag or "partial")


def _number(value: object) -> float:
    """0 for what is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return 0.0
    if isinstance(value, str) and (not value.isascii() or "_" in value):
        return 0.0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return 0.0
    return number if -1e9 < number < 1e9 else 0.0


def _meant(text: str) -> str:
    """The share in another spelling, as a fraction; empty if it can be none."""
    words = text.strip().replace(",", ".")
    above, slash, below = words.partition("/")
    if slash:
        divisor = _number(below)
        share = _number(above) / divisor if divisor else 0.0
    elif words.endswith("%"):
        share = _number(words[:-1]) / 100
    else:
        number = _number(words)
        # 1.5 is no percentage that anybody means, 50 is
        share = number / 100 if number >= 2 and number == int(number) else number
    share = round(share, 4)
    return plain_number(share) if 0 < share <= 1 else ""
