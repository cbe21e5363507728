"""Tokens that a client with an issuer's token asks for, renews, revokes and lists.

Their file is read and written beside the event loop, by one thread: a slow disk, or an administrator's
command that holds the file, keeps nobody waiting but issuers. How often one may ask is bounded, because
everybody waits while the service reads the changed file.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from bitfusion_pool.access.issued_tokens import NotIssued, Wanted, issue, issued_by, revoke
from bitfusion_pool.access.token_file import change_tokens, read_tokens
from bitfusion_pool.access.token_rules import SEPARATOR, IssuerBounds, TokenLimits, utc_time
from bitfusion_pool.access.tokens import Grant, StoredToken, Tokens
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import IssueToken, ListTokens, RevokeToken
from bitfusion_pool.messages.from_service import TokenIssued, TokenList, TokensRevoked
from bitfusion_pool.messages.message import Message
from bitfusion_pool.messages.pool_values import MOST_AT_ONCE, NO_UNITS, IssuedToken
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import Refusal

_log = logging.getLogger(__name__)
PER_SECOND = 5.0
AT_ONCE = 50
_LOCK_S = 2.0  # so long may an administrator's command hold the file
_MOST_NAMES = 1000  # issuers whose rates are remembered; an administrator makes each


class TokenIssuing:
    """One for a service; belongs to the event loop's thread."""

    def __init__(self, folder: str, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._folder = folder
        self._loop = loop
        self._metrics = metrics
        self._worker = ThreadPoolExecutor(1, "tokens")
        self._rates: dict[str, tuple[float, float]] = {}  # when, and how many it might ask for then

    def ask(self, message: Message, issuer: Peer, then: Callable[[Callable[[], Message]], None]) -> None:
        """Do what an issuer asks for; `then` gets, later, what returns the answer or raises a refusal.

        Raises:
            Refusal: It asks too often.
        """
        self._check_rate(issuer.user)
        future = self._worker.submit(self._answer, message, issuer)

        def done(found: Future[Message]) -> None:
            if not (found.cancelled() or self._loop.is_closed()):
                self._loop.call_soon_threadsafe(then, found.result)

        future.add_done_callback(done)

    def close(self) -> None:
        """Begin nothing more."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _check_rate(self, name: str) -> None:
        now = time.monotonic()
        if len(self._rates) >= _MOST_NAMES:
            self._rates.clear()
        since, left = self._rates.get(name, (now, float(AT_ONCE)))
        left = min(float(AT_ONCE), left + (now - since) * PER_SECOND)
        if left < 1:
            self._rates[name] = (now, left)
            raise Refusal(
                refusal_codes.TOO_MANY,
                f"an issuer may ask {PER_SECOND:g} times a second, and {name} asks more often",
                "try again in a few seconds",
            )
        self._rates[name] = (now, left - 1)

    # --- in the other thread ---------------------------------------------------------------------------

    def _answer(self, message: Message, issuer: Peer) -> Message:
        try:
            if isinstance(message, IssueToken):
                return self._issue(message, issuer)
            if isinstance(message, RevokeToken):
                return self._revoke(message, issuer)
            assert isinstance(message, ListTokens)
            return self._list(message, issuer)
        except NotIssued as error:
            raise Refusal(refusal_codes.NOT_ISSUED, error.message, error.next_step) from None
        except BlockingIOError:
            raise Refusal(
                refusal_codes.UNREADABLE,
                "an administrator's command is changing the tokens of this pool",
                "try again in a moment",
            ) from None

    def _issue(self, message: IssueToken, issuer: Peer) -> Message:
        wanted = Wanted(
            message.name, message.life_s, _limits(message), message.renew, message.keep, message.lower
        )
        made: list[tuple[str, StoredToken]] = []

        def change(tokens: Tokens) -> Tokens:
            now = time.time()
            changed, text, stored = issue(tokens, issuer.user, _bounds(tokens, issuer, now), wanted, now)
            made[:] = [(text, stored)]
            return changed

        change_tokens(self._folder, change, _LOCK_S)
        ((text, stored),) = made
        action = "renewed" if message.renew else "issued"
        self._tell(
            f"token {action}",
            issuer,
            token_name=stored.name,
            token=stored.token_id,
            expires=utc_time(stored.expires_at),
            limits=stored.limits.describe(),
        )
        self._metrics.tokens.labels(action).inc()
        return TokenIssued(text, _row(stored))

    def _revoke(self, message: RevokeToken, issuer: Peer) -> Message:
        ended: list[StoredToken] = []

        def change(tokens: Tokens) -> Tokens:
            now = time.time()
            _bounds(tokens, issuer, now)
            changed, ended[:] = revoke(tokens, issuer.user, message.name, now)
            return changed

        change_tokens(self._folder, change, _LOCK_S)
        for one in ended:
            self._tell("token revoked", issuer, token_name=one.name, token=one.token_id)
        self._metrics.tokens.labels("revoked").inc(len(ended))
        return TokensRevoked(f"{issuer.user}{SEPARATOR}{message.name}", len(ended))

    def _list(self, message: ListTokens, issuer: Peer) -> Message:
        tokens, now = read_tokens(self._folder), time.time()
        _bounds(tokens, issuer, now)
        found = [one for one in issued_by(tokens, issuer.user, now) if one.token_id > message.after]
        return TokenList(tuple(_row(one) for one in found[:MOST_AT_ONCE]), len(found) > MOST_AT_ONCE)

    def _tell(self, what: str, issuer: Peer, **more: str) -> None:
        _log.info(what, extra={"issuer": issuer.user, "address": issuer.address, **more})


class IssuerRequests:
    """What one connection asks for, one thing at a time. `issuing` is None for one of this machine."""

    def __init__(self, issuing: TokenIssuing | None) -> None:
        self._issuing = issuing
        self._is_busy = False

    def ask(self, message: Message, peer: Peer, then: Callable[[Callable[[], Message]], None]) -> None:
        """As `TokenIssuing.ask`. Raises Refusal also for who is no issuer."""
        if self._issuing is None:
            raise Refusal(
                refusal_codes.NOT_ALLOWED,
                "tokens are issued to an issuer over the network",
                "on this machine its administrator issues them: bitfusion-pool token create",
            )
        if not peer.is_issuer:
            raise Refusal(
                refusal_codes.NOT_ALLOWED,
                f"the token of {peer.user} issues no tokens",
                "use an issuer's: its administrator makes one by bitfusion-pool token create NAME --issuer",
            )
        if self._is_busy:
            raise Refusal(refusal_codes.BAD_MESSAGE, "this connection asks for a token already")

        def answered(answer: Callable[[], Message]) -> None:
            self._is_busy = False
            then(answer)

        self._issuing.ask(message, peer, answered)
        self._is_busy = True  # the answer comes in a later round of the loop


def _bounds(tokens: Tokens, issuer: Peer, now: float) -> IssuerBounds:
    """What this issuer may do as the file is now: it may have been revoked since it said hello."""
    token_id = issuer.token.token_id if issuer.token is not None else ""
    found = tokens.allows(token_id, now)
    if not isinstance(found, Grant):
        raise Refusal(refusal_codes.WRONG_TOKEN, found.message, found.next_step)
    if found.may_issue is None:
        raise Refusal(refusal_codes.NOT_ALLOWED, f"the token of {found.name} issues no tokens")
    return found.may_issue


def _limits(message: IssueToken) -> TokenLimits:
    return TokenLimits(
        message.gpus or None,
        message.share or None,
        message.leases or None,
        message.waiting or None,
        None if message.units == NO_UNITS else message.units,
    )


def _row(token: StoredToken) -> IssuedToken:
    limits = token.limits
    return IssuedToken(
        token.token_id,
        token.name,
        token.created_at,
        token.expires_at,
        limits.gpus or 0,
        limits.share or 0.0,
        limits.leases or 0,
        limits.waiting or 0,
        NO_UNITS if limits.units is None else limits.units,
    )
