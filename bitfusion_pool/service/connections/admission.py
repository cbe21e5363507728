"""Whether a client is let in, and as whom: by its user on this machine, or by its token."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TypeAlias

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.access.token_file import TokenFile
from bitfusion_pool.access.tokens import Grant, WrongToken
from bitfusion_pool.ledger.ledger import Ledger
from bitfusion_pool.messages.from_client import Hello
from bitfusion_pool.messages.refusal_codes import WRONG_TOKEN
from bitfusion_pool.service.connections.connection_counts import ConnectionCounts, Stranger, Strangers
from bitfusion_pool.service.connections.peer import Peer
from bitfusion_pool.service.refusal import Refusal, refusal_of


class LocalAdmission:
    """Of a connection on the unix socket, whose user the kernel knows and the listener has counted.

    See `TokenAdmission`, which has the same methods.
    """

    def __init__(self, peer: Peer, counts: ConnectionCounts) -> None:
        self.known_as: int | str = peer.uid
        self._peer = peer
        self._counts = counts

    def admit(self, hello: Hello) -> Peer:
        """See `TokenAdmission`."""
        return self._peer

    def look_again(self) -> Peer:
        """See `TokenAdmission`."""
        return self._peer

    def over(self) -> None:
        """See `TokenAdmission`."""
        self._counts.leave(self._peer.uid)


class TokenAdmission:
    """Of a connection over TLS: a stranger until it shows a token.

    Attributes:
        known_as: A user's number or a machine's address: whose turn its first message is, and for the log.
    """

    def __init__(
        self, stranger: Stranger, strangers: Strangers, tokens: PoolTokens, counts: ConnectionCounts
    ) -> None:
        self.known_as: int | str = stranger.source
        self._stranger = stranger
        self._strangers = strangers
        self._tokens = tokens
        self._counts = counts
        self._peer: Peer | None = None

    def admit(self, hello: Hello) -> Peer:
        """Who it is. Called once, and not again after a refusal. Raises Refusal."""
        peer = self._tokens.peer(hello.token, self._stranger.source)
        self._counts.enter(peer.uid)
        self._peer = peer
        self._strangers.leave(self._stranger)
        return peer

    def look_again(self) -> Peer:
        """Who was admitted, with the limits that hold now. Called once somebody has been.

        Raises:
            Refusal: It may not.
            PoolUnreadable: Nobody can tell; it stays until somebody can.
        """
        assert self._peer is not None
        self._peer = self._tokens.look_again(self._peer)
        return self._peer

    def over(self) -> None:
        """The connection has ended. Called once."""
        if self._peer is None:
            self._strangers.leave(self._stranger)
        else:
            self._counts.leave(self._peer.uid)


Admission: TypeAlias = LocalAdmission | TokenAdmission


class PoolTokens:
    """The pool's tokens as they are now."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._file = TokenFile(ledger.folder)

    def peer(self, token: str, address: str) -> Peer:
        """Whose token this is. Raises Refusal."""
        try:
            grant = _checked(self._file.tokens().check(token, time.time()))
            return Peer(self._ledger.number_of_name(grant.name), grant.name, 0, address, grant)
        except PoolUnreadable as error:
            raise refusal_of(error) from None

    def look_again(self, peer: Peer) -> Peer:
        """Who is at an open connection, by its token as it is now. Raises Refusal and PoolUnreadable."""
        if peer.token is None:
            return peer
        return replace(peer, token=_checked(self._file.tokens().allows(peer.token.token_id, time.time())))


def _checked(answer: Grant | WrongToken) -> Grant:
    if isinstance(answer, WrongToken):
        raise Refusal(WRONG_TOKEN, answer.message, answer.next_step)
    return answer
