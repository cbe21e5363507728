"""A token's name, its end and its limits, as an administrator writes them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import datetime, timezone

from bitfusion_client.errors import WrongSetting
from bitfusion_client.kubernetes.sizes import UNITS_PER_GPU
from bitfusion_client.request.decimals import plain_number

DAY_S = 86400
DEFAULT_LIFETIME_S = 365 * DAY_S  # as the real client's token
LONGEST_LIFETIME_S = 730 * DAY_S
LARGEST_COUNT = 100_000
LARGEST_UNITS = UNITS_PER_GPU * LARGEST_COUNT
LONGEST_NAME = 63
DEFAULT_ISSUED_LIFETIME_S = 30 * DAY_S
DEFAULT_ISSUED_NAMES = 200
MOST_ISSUED_NAMES = 500  # each may have three secrets in force, and a pool has 2000 tokens
SEPARATOR = "/"  # between an issuer's name and the one it gives; a name that an administrator gives has none

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_SPAN = re.compile(r"([0-9]{1,6})(h|d)")
_EXPIRY = "must be hours or days such as 12h or 90d, or a date such as 2027-03-31"


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """How much a token allows; None: as much as the pool has.

    Attributes:
        gpus: GPUs of all its leases and waiting requests together.
        share: The most of each GPU's memory that one request may ask for, above 0 and at most 1.
        leases: Leases and waiting requests together.
        waiting: Requests that wait.
        units: Hundredths of a GPU of all its leases and waiting requests together; 0: it may take nothing.
            Stored only where it is given: versions before it read the rest.
    """

    gpus: int | None = None
    share: float | None = None
    leases: int | None = None
    waiting: int | None = None
    units: int | None = None

    def describe(self) -> str:
        """For people: ``2 GPUs, 50 % of each, 4 leases, 150 units``."""
        words = {
            "gpus": "{} GPUs",
            "share": "{} % of each",
            "leases": "{} leases",
            "waiting": "{} waiting",
            "units": "{} units",
        }
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.share is not None:
            found["share"] = plain_number(round(self.share * 100, 4))
        shown = [words[name].format(value) for name, value in found.items() if value is not None]
        return ", ".join(shown) or "no limits"


@dataclass(frozen=True, slots=True)
class IssuerBounds:
    """What an issuer's token allows: it issues tokens, and may do nothing else.

    Attributes:
        limits: The most that one of its names gets.
        names: How many names may have a token at once.
        longest_s: How long a token may last, in seconds.
    """

    limits: TokenLimits
    names: int = DEFAULT_ISSUED_NAMES
    longest_s: float = DEFAULT_ISSUED_LIFETIME_S

    def describe(self) -> str:
        """For people."""
        return f"issues tokens for {self.names} names and {days(self.longest_s)}: {self.limits.describe()}"


def days(seconds: float) -> str:
    """A token's life for people: ``30 days``, ``36 hours``."""
    whole, rest = divmod(round(seconds), DAY_S)
    if not rest:
        return f"{whole} days"
    return f"{plain_number(round(seconds / 3600, 2))} hours"


def parse_name(text: str) -> str:
    """The name of a token's user, which others see beside its leases. Raises WrongSetting."""
    if not _NAME.fullmatch(text) or len(text) > LONGEST_NAME:
        allowed = (
            f"must be at most {LONGEST_NAME} letters, digits and . _ @ - of ASCII, a letter or digit first"
        )
        raise WrongSetting("NAME", text, allowed)
    return text


def issued_name(issuer: str, name: str) -> str:
    """The whole name of a token that an issuer issues: nobody else can give it. Raises WrongSetting."""
    return f"{issuer}{SEPARATOR}{parse_name(name)}"


def parse_issued_names(text: str) -> int:
    """How many names an issuer may have. Raises WrongSetting."""
    return _whole("--may-issue-names", text, 1, MOST_ISSUED_NAMES)


def parse_lifetime(option: str, text: str) -> float:
    """How long a token lasts, in seconds. Raises WrongSetting."""
    seconds = _span_s(text) or 0
    if not 0 < seconds <= LONGEST_LIFETIME_S:
        most = LONGEST_LIFETIME_S // DAY_S
        raise WrongSetting(option, text, f"must be hours or days such as 12h or 30d, at most {most}d")
    return float(seconds)


def parse_count(option: str, text: str) -> int:
    """A limit that counts something. Raises WrongSetting."""
    return _whole(option, text, 1, LARGEST_COUNT)


def parse_units(option: str, text: str) -> int:
    """A limit in hundredths of a GPU. Raises WrongSetting."""
    return _whole(option, text, 0, LARGEST_UNITS, f"; {UNITS_PER_GPU} units are one GPU")


def parse_expiry(text: str, now: float) -> float:
    """When a token ends, in seconds since the epoch; a date is its beginning in UTC. Raises WrongSetting."""
    span_s = _span_s(text)
    if span_s is not None:
        at = now + span_s
    else:
        try:
            at = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            raise WrongSetting("--expires", text, _EXPIRY) from None
    if at <= now:
        raise WrongSetting("--expires", text, "must be in the future")
    if at > now + LONGEST_LIFETIME_S:
        raise WrongSetting("--expires", text, f"a token lasts at most {LONGEST_LIFETIME_S // DAY_S} days")
    return at


def utc_time(at: float) -> str:
    """A time for people and programs: ``2027-11-22T14:03:00Z``."""
    return datetime.fromtimestamp(int(at), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _whole(option: str, text: str, least: int, most: int, more: str = "") -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
        raise WrongSetting(option, text, f"must be a whole number from {least} to {most}{more}")
    return int(text)


def _span_s(text: str) -> int | None:
    """Seconds of ``12h`` and ``90d``; None of anything else."""
    span = _SPAN.fullmatch(text)
    return int(span[1]) * (DAY_S if span[2] == "d" else 3600) if span else None
