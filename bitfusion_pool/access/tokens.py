"""The tokens of a pool and what each allows. Pure: time is passed in, nothing is read or written.

A service asks `Tokens.check` at every `hello`, and `Tokens.allows` again for connections that are open.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from bitfusion_client.errors import WrongSetting
from bitfusion_pool.access.token_rules import (
    LONGEST_LIFETIME_S,
    MOST_ISSUED_NAMES,
    IssuerBounds,
    TokenLimits,
    issued_name,
    parse_name,
    utc_time,
)
from bitfusion_pool.access.token_text import is_token, new_token, token_hash

FORMAT = 1
MAX_TOKENS = 2000  # read in some 10 ms, during which a service answers nobody
KEPT_S = 90 * 86400
"""How long an ended or revoked token is remembered, so that who still uses it is told why it is refused."""

UNKNOWN, EXPIRED, REVOKED = "token_unknown", "token_expired", "token_revoked"
_ASK = "ask the administrator of this pool for a new token"


@dataclass(frozen=True, slots=True)
class Grant:
    """A token is good. Leases belong to `name`, so that a new token of the same name comes back to them.

    Attributes:
        token_id: For logs and for `Tokens.allows`; no secret.
        name: Whose it is.
        expires_at: Seconds since the epoch.
        limits: How much it allows.
        may_issue: Of an issuer's token, which allows this and nothing else.
        created_at: Seconds since the epoch.
    """

    token_id: str
    name: str
    expires_at: float
    limits: TokenLimits
    may_issue: IssuerBounds | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class WrongToken:
    """A token is not good: a code for programs, words for people."""

    code: str
    message: str
    next_step: str = _ASK


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is kept of a token. Times are in seconds since the epoch; `revoked_at` is None until it is.

    `may_issue` is of an issuer's token. `issuer` is the name of the issuer's that issued it; empty if an
    administrator did. The two, and limits in units, are stored only where they say something: versions before
    them read the rest.
    """

    hash: str
    name: str
    created_at: float
    expires_at: float
    limits: TokenLimits
    revoked_at: float | None = None
    may_issue: IssuerBounds | None = None
    issuer: str = ""

    @property
    def token_id(self) -> str:
        """The first twelve digits of the hash: for people and logs, no secret."""
        return self.hash[:12]

    def is_good(self, now: float) -> bool:
        """Whether it is neither expired nor revoked."""
        return self.state(now) == "good"

    @property
    def ends_at(self) -> float:
        """When it ends or was revoked."""
        return self.expires_at if self.revoked_at is None else self.revoked_at

    def state(self, now: float) -> str:
        """``good``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        return "good" if now < self.expires_at else "expired"


class WrongTokens(ValueError):
    """The stored text is none that this version wrote; `str()` says what is wrong."""


class Tokens:
    """All tokens of a pool, unchangeable: changes return new ones."""

    def __init__(self, tokens: tuple[StoredToken, ...] = ()) -> None:
        self.all = tokens
        self._by_id = {token.token_id: token for token in tokens}

    def check(self, text: str, now: float) -> Grant | WrongToken:
        """What the text that a client sends allows now. Any text: nobody has looked at it before."""
        if not text:
            return WrongToken(UNKNOWN, "this pool is for clients with a token, and none was sent")
        if not is_token(text):
            return WrongToken(
                UNKNOWN,
                "this is not a pool token, or only part of one",
                "copy the whole token, or use the client.yaml that came with it",
            )
        digest = token_hash(text)
        found = self._by_id.get(digest[:12])
        if found is None or not hmac.compare_digest(found.hash, digest):
            return WrongToken(UNKNOWN, "this pool does not know the token")
        return self._allowed(found, now)

    def allows(self, token_id: str, now: float) -> Grant | WrongToken:
        """What the token of an open connection allows now: it may have ended since."""
        found = self._by_id.get(token_id)
        if found is None:
            return WrongToken(UNKNOWN, "this pool no longer knows the token")
        return self._allowed(found, now)

    def _allowed(self, found: StoredToken, now: float) -> Grant | WrongToken:
        if found.revoked_at is not None:
            return WrongToken(REVOKED, f"the token was revoked at: {utc_time(found.revoked_at)}")
        if now >= found.expires_at:
            return WrongToken(EXPIRED, f"Token expired at: {utc_time(found.expires_at)}")
        return Grant(
            found.token_id, found.name, found.expires_at, found.limits, found.may_issue, found.created_at
        )

    def good(self, name: str, now: float) -> StoredToken | None:
        """The token of this name that is in force."""
        return next((one for one in self.all if one.name == name and one.is_good(now)), None)

    def find(self, word: str, now: float) -> StoredToken | None:
        """The token with this id, or the one of this name that is in force."""
        return self._by_id.get(word) or self.good(word, now)

    def with_new(
        self,
        name: str,
        expires_at: float,
        limits: TokenLimits,
        now: float,
        may_issue: IssuerBounds | None = None,
        issuer: str = "",
    ) -> tuple[Tokens, str]:
        """With one token more; returns its text, too, which is nowhere else. Those of long ago are dropped.

        Raises:
            ValueError: There are too many.
        """
        kept = tuple(one for one in self.all if (one.revoked_at or one.expires_at) > now - KEPT_S)
        if len(kept) >= MAX_TOKENS:
            raise ValueError(f"there are {MAX_TOKENS} tokens, which is the most a pool has")
        text = new_token()
        token = StoredToken(token_hash(text), name, now, expires_at, limits, None, may_issue, issuer)
        return Tokens((*kept, token)), text

    def without(self, token: StoredToken, now: float) -> Tokens:
        """With this one revoked."""
        return Tokens(tuple(replace(one, revoked_at=now) if one is token else one for one in self.all))

    def to_text(self) -> str:
        """What is stored; no token can be made of it."""
        rows = [_row(token) for token in self.all]
        return json.dumps({"format": FORMAT, "tokens": rows}, indent=1) + "\n"


def _row(token: StoredToken) -> dict[str, Any]:
    row = asdict(token)
    for limits in (row["limits"], (row["may_issue"] or {}).get("limits", {})):
        if limits.get("units") is None:
            limits.pop("units", None)
    for name in ("may_issue", "issuer"):
        if not row[name]:
            del row[name]
    return row


def parse_tokens(text: str) -> Tokens:
    """The opposite of `Tokens.to_text`.

    Raises:
        WrongTokens: The text is damaged, or of another version. Nothing is passed over: it may be a limit.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise WrongTokens("it is not JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise WrongTokens(f"it does not have the format {FORMAT}, which this program reads")
    rows = data.get("tokens")
    if not isinstance(rows, list) or len(rows) > MAX_TOKENS:
        raise WrongTokens("it has no list of tokens")
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(_token(row))
        except (TypeError, ValueError, KeyError, WrongSetting):
            raise WrongTokens(f"its token number {number} is damaged") from None
    if len({token.token_id for token in found}) != len(found):
        raise WrongTokens("it has the same token twice")
    return Tokens(tuple(found))


def _token(row: dict[str, Any]) -> StoredToken:
    values = {**row, "limits": _limits(row["limits"])}
    if row.get("may_issue") is not None:
        values["may_issue"] = _bounds(row["may_issue"])
    token = StoredToken(**values)
    if len(token.hash) != 64 or int(token.hash, 16) < 0 or token.hash != token.hash.lower():
        raise ValueError
    if token.issuer:
        if token.may_issue or token.name != issued_name(
            parse_name(token.issuer), token.name[len(token.issuer) + 1 :]
        ):
            raise ValueError
    else:
        parse_name(token.name)
    for time in (token.created_at, token.expires_at, token.revoked_at or 0):
        if type(time) not in (int, float) or not 0 <= time < 1e11:
            raise ValueError
    return token


def _limits(row: dict[str, Any]) -> TokenLimits:
    limits = TokenLimits(**row)
    for count in (limits.gpus, limits.leases, limits.waiting):
        if count is not None and (type(count) is not int or count < 1):
            raise ValueError
    if limits.units is not None and (type(limits.units) is not int or limits.units < 0):
        raise ValueError
    if limits.share is not None and not (type(limits.share) in (int, float) and 0 < limits.share <= 1):
        raise ValueError
    return limits


def _bounds(row: dict[str, Any]) -> IssuerBounds:
    bounds = IssuerBounds(**{**row, "limits": _limits(row["limits"])})
    if type(bounds.names) is not int or not 1 <= bounds.names <= MOST_ISSUED_NAMES:
        raise ValueError
    if type(bounds.longest_s) not in (int, float) or not 0 < bounds.longest_s <= LONGEST_LIFETIME_S:
        raise ValueError
    return bounds
