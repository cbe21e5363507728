"""From a TCP connection to one that a `Link` can use: TLS, then the greetings. Nothing here waits.

The pod's side reads first, so that a stranger who says nothing learns nothing; whoever owns several polls
their sockets and calls `go_on`. What is not done in time is closed by its owner.
"""

from __future__ import annotations

import socket
import ssl
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.stream import greeting
from bitfusion_pods.stream.frames import ProtocolError
from bitfusion_pods.stream.greeting import Greeting
from bitfusion_pods.stream.tls import tune
from bitfusion_pods.stream.tls_connection import TlsConnection

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 3.0
"""Seconds for all of it."""


class Refused(Exception):
    """It comes to nothing; the text says why, for a log."""


class Handshake:
    """Of one connection, which it owns until `connection` is taken.

    Args:
        raw: Connected.
        context: From `tls.context`.
        server: Whether this is the pod's side.
        own: Makes the greeting of this side; on the pod's side it is given the client's, and may raise
            ProtocolError.

    Raises:
        Refused: It is over already, as after a reset, and closed.
    """

    def __init__(
        self,
        raw: socket.socket,
        context: ssl.SSLContext,
        own: Callable[[Greeting | None], Greeting],
        *,
        server: bool,
    ) -> None:
        self.said: Greeting | None = None
        """The greeting of this side, once it has been said."""
        try:
            tune(raw)
            self.connection = TlsConnection(raw, context, server=server)
        except OSError as error:
            raw.close()
            raise Refused(str(error)) from None
        self.until = time.monotonic() + LIMIT
        self._own = own
        self.wants_write = not server
        """Whether to poll for writing, too."""
        self._server = server
        self._is_secure = False
        self._to_send = b"" if server else self._say(None)
        self._received = b""
        self._theirs: Greeting | None = None

    def go_on(self) -> Greeting | None:
        """Do what can be done now; the peer's greeting when all is done.

        Raises:
            Refused: It is over, and closed.
        """
        try:
            return self._step()
        except ssl.SSLWantReadError:
            self.wants_write = False
        except ssl.SSLWantWriteError:
            self.wants_write = True
        except (OSError, ProtocolError) as error:
            self.close()
            raise Refused(str(error)) from None
        return None

    def _step(self) -> Greeting | None:
        if not self._is_secure:
            self.connection.do_handshake()
            self._is_secure = True
        if not self._server:
            self._send()
        while self._theirs is None:
            chunk = self.connection.recv(greeting.LENGTH - len(self._received))
            if not chunk:
                raise ProtocolError("it has closed the connection")
            self._received += chunk
            if len(self._received) == greeting.LENGTH:
                self._theirs = greeting.decode(self._received)
                if self._server:
                    self._to_send = self._say(self._theirs)
        self._send()
        return self._theirs

    def _say(self, theirs: Greeting | None) -> bytes:
        self.said = self._own(theirs)
        return self.said.encode()

    def _send(self) -> None:
        while self._to_send:
            self._to_send = self._to_send[self.connection.send(self._to_send) :]

    def close(self) -> None:
        """Give it up."""
        self.connection.close()
