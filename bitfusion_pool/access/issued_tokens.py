"""What an issuer's token may do with the tokens of a pool: issue, renew, revoke and list its own. Pure.

An issuer gives names below its own, `ISSUER/NAME`, with limits within its bounds. A name may have several
secrets in force at once: whoever has an older one goes on until that one ends, so that running programs live
through a renewal. Limits belong to the name: the latest hold for all its secrets.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from bitfusion_client.errors import WrongSetting
from bitfusion_client.request.decimals import plain_number
from bitfusion_pool.access.token_rules import IssuerBounds, TokenLimits, days, issued_name, utc_time
from bitfusion_pool.access.tokens import MAX_TOKENS, StoredToken, Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_SECRETS = 3
"""How many secrets one name has in force: the one that is used, the one before, and one that was lost."""
KEPT_S = 7 * 86400
"""How long an issued token that has ended is remembered, so that who still uses it is told why."""
KEPT_FOR_ADMINISTRATORS = 200  # tokens of a pool that no issuer can use up


NONE = TokenLimits()
_ANOTHER = "ask the administrator of this pool for an issuer with"


class NotIssued(Exception):
    """An issuer asks for what it may not have; `message` and `next_step` are for people."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message, next_step)
        self.message = message
        self.next_step = next_step


@dataclass(frozen=True, slots=True)
class Wanted:
    """A token that an issuer asks for.

    Attributes:
        name: Below the issuer's.
        life_s: How long it lasts; 0: as long as the issuer may say.
        limits: A limit that is not named is the issuer's own.
        renew: Whether the name may have a token already, which stays in force.
        keep: The id of the secret that is in use, which is not ended to make room. May be empty.
        lower: Whether a limit above the issuer's is lowered to it, where it would be refused otherwise.
    """

    name: str
    life_s: float = 0.0
    limits: TokenLimits = NONE
    renew: bool = False
    keep: str = ""
    lower: bool = False


def issue(
    tokens: Tokens, issuer: str, bounds: IssuerBounds, wanted: Wanted, now: float
) -> tuple[Tokens, str, StoredToken]:
    """The tokens with one more, its text, and what is kept of it.

    Raises:
        NotIssued: It is not within the bounds, or the pool has too many tokens.
    """
    name = _whole_name(issuer, wanted.name)
    limits = _within(bounds.limits, wanted.limits, wanted.lower)
    life_s = wanted.life_s or bounds.longest_s
    if not 0 < life_s <= bounds.longest_s:
        raise NotIssued(
            f"this issuer's tokens last at most {days(bounds.longest_s)}, "
            f"and {days(max(0.0, life_s))} were asked for",
            f"ask for a shorter life, or {_ANOTHER} --may-issue-for",
        )
    good = [one for one in tokens.all if one.name == name and one.is_good(now)]
    if good and not wanted.renew:
        until = utc_time(max(one.expires_at for one in good))
        raise NotIssued(f"{name} has a token until {until}", "renew it, or revoke it first")
    names = {one.name for one in tokens.all if one.issuer == issuer and one.is_good(now)}
    if name not in names and len(names) >= bounds.names:
        raise NotIssued(
            f"this issuer may have {bounds.names} names, and as many have a token",
            f"revoke one, or {_ANOTHER} --may-issue-names",
        )
    surplus = [one for one in good if one.token_id != wanted.keep][: max(0, len(good) - MOST_SECRETS + 1)]
    kept = []
    for one in _without_old(tokens.all, issuer, bounds.names, now):
        if one.name == name and one.is_good(now):
            one = replace(one, limits=limits, revoked_at=now if one in surplus else None)
        kept.append(one)
    if len(kept) >= MAX_TOKENS - KEPT_FOR_ADMINISTRATORS:
        raise NotIssued("this pool has too many tokens", "ask its administrator to look at `token list`")
    changed, text = Tokens(tuple(kept)).with_new(name, now + life_s, limits, now, issuer=issuer)
    return changed, text, changed.all[-1]


def revoke(tokens: Tokens, issuer: str, name: str, now: float) -> tuple[Tokens, list[StoredToken]]:
    """The tokens without those in force of a name below this issuer's, and these. Raises NotIssued."""
    whole = _whole_name(issuer, name)
    ended = [one for one in tokens.all if one.name == whole and one.issuer == issuer and one.is_good(now)]
    changed = tokens
    for one in ended:
        changed = changed.without(one, now)
    return changed, ended


def issued_by(tokens: Tokens, issuer: str, now: float) -> list[StoredToken]:
    """The tokens in force that this issuer has issued, in the order of their ids."""
    found = [one for one in tokens.all if one.issuer == issuer and one.is_good(now)]
    return sorted(found, key=lambda one: one.token_id)


def _whole_name(issuer: str, name: str) -> str:
    try:
        return issued_name(issuer, name)
    except WrongSetting as error:
        raise NotIssued(str(error), "choose another name") from None


def _within(most: TokenLimits, wanted: TokenLimits, lower: bool) -> TokenLimits:
    """The limits that are wanted, those of the issuer where none is; `NotIssued` if one is larger.

    With `lower` the issuer's own in its place.
    """
    found = {}
    for name in (field.name for field in fields(TokenLimits)):
        bound, asked = getattr(most, name), getattr(wanted, name)
        if asked is not None and (asked < 0 or (not asked and name != "units")):
            least = "at least" if name == "units" else "above"
            raise NotIssued(f"a limit is {least} 0, and {name} is {plain_number(asked)}", "ask for more")
        if bound is not None and asked is not None and asked > bound and not lower:
            raise NotIssued(
                f"this issuer gives at most {name} {plain_number(bound)}, "
                f"and {plain_number(asked)} were asked for",
                f"ask for less, or {_ANOTHER} --may-issue-{name}",
            )
        found[name] = min((one for one in (asked, bound) if one is not None), default=None)
    if found["share"] is not None and found["share"] > 1:
        raise NotIssued(
            f"a share is at most 1, and {plain_number(found['share'])} was asked for", "ask for less"
        )
    return TokenLimits(**found)


def _without_old(all_tokens: Sequence[StoredToken], issuer: str, most: int, now: float) -> list[StoredToken]:
    """Without the ended tokens of this issuer that are a week old, or more than `most`."""
    ended = [one for one in all_tokens if one.issuer == issuer and not one.is_good(now)]
    kept = [one for one in ended if one.ends_at > now - KEPT_S]
    kept = sorted(kept, key=lambda one: one.ends_at)[-most:]
    forgotten = {one.token_id for one in ended} - {one.token_id for one in kept}
    return [one for one in all_tokens if one.token_id not in forgotten]
