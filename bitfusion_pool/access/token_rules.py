"""A token's name, its end and its limits, as an administrator writes them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import datetime, timezone

from bitfusion_client.decimals import plain_number
from bitfusion_client.errors import WrongSetting
from bitfusion_client.shares import parse_share

DAY_S = 86400
DEFAULT_LIFETIME_S = 365 * DAY_S  # as the real client's token
LONGEST_LIFETIME_S = 730 * DAY_S
LARGEST_COUNT = 100_000
LONGEST_NAME = 63

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]*")
_SPAN = re.compile(r"([0-9]{1,6})(h|d)")
_EXPIRY = "must be hours or days such as 12h or 90d, or a date such as 2027-03-31"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a token allows; None: as much as the pool has.

    Attributes:
        gpus: GPUs of all its leases and waiting requests together.
        share: The most of each GPU's memory that one request may ask for, above 0 and at most 1.
        leases: Leases and waiting requests together.
        waiting: Requests that wait.
    """

    gpus: int | None = None
    share: float | None = None
    leases: int | None = None
    waiting: int | None = None

    def describe(self) -> str:
        """For people: ``2 GPUs, 50 % of each, 4 leases``."""
        words = {"gpus": "{} GPUs", "share": "{} % of each", "leases": "{} leases", "waiting": "{} waiting"}
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.share is not None:
            found["share"] = plain_number(round(self.share * 100, 4))
        shown = [words[name].format(value) for name, value in found.items() if value is not None]
        return ", ".join(shown) or "no limits"


def parse_name(text: str) -> str:
    """The name of a token's user, which others see beside its leases. Raises WrongSetting."""
    if not _NAME.fullmatch(text) or len(text) > LONGEST_NAME:
        allowed = (
            f"must be at most {LONGEST_NAME} letters, digits and . _ @ - of ASCII, a letter or digit first"
        )
        raise WrongSetting("NAME", text, allowed)
    return text


def parse_count(option: str, text: str) -> int:
    """A limit that counts something. Raises WrongSetting."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= LARGEST_COUNT):
        raise WrongSetting(option, text, f"must be a whole number from 1 to {LARGEST_COUNT}")
    return int(text)


def parse_limit_share(text: str) -> float:
    """The share of a GPU. Raises InvalidRequest, which says how a percentage is written."""
    return parse_share(text, "--share")


def parse_expiry(text: str, now: float) -> float:
    """When a token ends, in seconds since the epoch; a date is its beginning in UTC. Raises WrongSetting."""
    span = _SPAN.fullmatch(text)
    if span:
        at = now + int(span[1]) * (DAY_S if span[2] == "d" else 3600)
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
