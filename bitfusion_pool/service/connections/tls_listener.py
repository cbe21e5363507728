"""The port for clients on other machines: its certificate, and handshakes bounded in time and number."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable

from bitfusion_client.errors import ClientFailed, PoolUnreadable
from bitfusion_client.listening.acceptor import BACKLOG, Acceptor
from bitfusion_client.listening.crowd import source_of
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.tls import server_context, tls_reason
from bitfusion_pool.service.connections.connection_counts import CROWDED, Stranger, Strangers
from bitfusion_pool.service.connections.tls_stream import Linger, TlsStream
from bitfusion_pool.service.monitoring.metrics import Metrics
from bitfusion_pool.service.refusal import Refusal, RefusalLog

_log = logging.getLogger(__name__)
HANDSHAKE_S = 5.0
_AT_ONCE_S = 2.0  # of so many seconds after a pause: the service was away, and a machine's clients come back
_MOST_ADDRESSES = 4096
_KEEPALIVE_S = 60  # after so long without a word the system asks whether the other side is still there
_HTTP_ANSWER = (
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port speaks TLS, and is for the bitfusion command; it is no web server.\n"
)


def bind_port(address: Address) -> socket.socket:
    """A socket that listens at this address; at all of the machine's where it has no host.

    Raises:
        ClientFailed: It cannot; says why and what to do.
    """
    host = address.host
    family = socket.AF_INET6 if ":" in host or (not host and _has_ipv6()) else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(host)))
        listening.bind((host, address.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise ClientFailed(
            "",
            f"cannot listen at {address}: {error.strerror or error}; "
            "end what uses this port, or choose another address with listen",
        ) from None
    return listening


def _has_ipv6() -> bool:
    return socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")


class ServiceCertificate:
    """The service's certificate, which new connections are shown; it is read again when its file has changed.

    Raises:
        PoolUnreadable: The file cannot be used.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = _version(path)
        self._context = server_context(path)

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    def look_again(self) -> None:
        """Read the file if it has changed; one that cannot be used is told to the log, and not used."""
        found = _version(self._path)
        if found == self._seen:
            return
        self._seen = found
        try:
            self._context = server_context(self._path)
        except PoolUnreadable as error:
            _log.error("certificate cannot be used", extra={"reason": str(error)})
        else:
            _log.info("certificate read again", extra={"file": self._path})


def _version(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class HandshakePace:
    """Gives each connection the time at which its handshake may begin; others of its address wait. Pure.

    A handshake costs the thread that serves everybody about half a millisecond, and whoever asks for it
    nothing.

    Args:
        per_second: Handshakes of one address each second, in the long run.
    """

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._due: dict[str, float] = {}  # of the last one, had they come evenly

    def take_turn(self, address: str, now: float, longest_s: float) -> float | None:
        """The seconds until a new connection has its turn; None, and no turn is taken: it would be too late.

        Args:
            address: From `source_of`.
            now: By a monotonic clock.
            longest_s: So long may it wait.
        """
        if len(self._due) >= _MOST_ADDRESSES:
            self._forget_idle(now)
        due = max(now - _AT_ONCE_S, self._due.get(address, 0.0)) + self._interval
        if due - now > longest_s:
            return None
        self._due[address] = due
        return max(0.0, due - now)

    def _forget_idle(self, now: float) -> None:
        limit = now - _AT_ONCE_S
        self._due = {address: due for address, due in self._due.items() if due > limit}
        if len(self._due) >= _MOST_ADDRESSES:  # so many at once: what they take is bounded otherwise
            self._due.clear()


class TlsListener:
    """Takes connections from other machines.

    `connected` is given each whose handshake is over; until it shows its token it is a stranger still.
    """

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        context: Callable[[], ssl.SSLContext],
        strangers: Strangers,
        pace: HandshakePace,
        connected: Callable[[TlsStream, Stranger], None],
        refusals: RefusalLog,
        metrics: Metrics,
    ) -> None:
        self.metrics = metrics
        self.loop = loop
        self.strangers = strangers
        self.pace = pace
        self.connected = connected
        self.refusals = refusals
        self._context = context
        self._linger = Linger(loop)
        self._acceptor = Acceptor(listening, loop, self._take, strangers.make_room)

    def close(self) -> None:
        """Take no more connections. Handshakes that are under way end by themselves."""
        self._acceptor.close()

    def _take(self, connected: socket.socket, address: object) -> None:
        assert isinstance(address, tuple)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        _Arrival(self, TlsStream(connected, self._context(), self._linger), source_of(address[0]))


class _Arrival:
    """One connection until its handshake is over."""

    def __init__(self, listener: TlsListener, stream: TlsStream, source: str) -> None:
        self._listener = listener
        self._loop = listener.loop
        self._stream = stream
        self._fd = stream.fileno()
        self._timer = self._loop.call_later(HANDSHAKE_S, self._too_slow)
        self._loop.add_reader(self._fd, self._hear)
        self._stranger = Stranger(source, self._make_room)
        listener.strangers.enter(self._stranger)

    def _hear(self) -> None:
        """The first words. Until they are whole it has no turn, nor takes one from others of its address."""
        if not self._goes_on(self._stream.hear):
            return
        self._pause()
        wait_s = self._listener.pace.take_turn(self._stranger.source, self._loop.time(), HANDSHAKE_S)
        if wait_s == 0:
            self._begin()
            return
        self._listener.metrics.handshakes_delayed.inc()
        if wait_s is None:
            self._refuse(OSError("this address makes too many handshakes"))
        else:
            self._timer = self._loop.call_later(wait_s, self._begin)

    def _begin(self) -> None:
        self._timer = self._loop.call_later(HANDSHAKE_S, self._too_slow)
        self._loop.add_reader(self._fd, self._shake)
        self._shake()

    def _shake(self) -> None:
        if self._goes_on(self._stream.shake_hands):
            self._pause()
            self._listener.connected(self._stream, self._stranger)

    def _goes_on(self, step: Callable[[], bool]) -> bool:
        """Whether a step with what has come is the last one of its kind."""
        try:
            return step()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:  # an SSLError is one
            self._refuse(error)
            return False

    def _pause(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._fd)

    def _too_slow(self) -> None:
        self._refuse(TimeoutError(f"no handshake within {HANDSHAKE_S:g} seconds"))

    def _make_room(self) -> None:
        self._pause()
        self._listener.refusals.refused(self._stranger.source, _no_tls(CROWDED))
        self._stream.reset()

    def _refuse(self, error: OSError) -> None:
        self._pause()
        self._listener.strangers.leave(self._stranger)
        self._listener.refusals.refused(self._stranger.source, _no_tls(tls_reason(error)))
        if getattr(error, "reason", "") == "HTTP_REQUEST":
            self._stream.refuse(_HTTP_ANSWER)
        else:
            self._stream.close()


def _no_tls(why: str) -> Refusal:
    return Refusal("no_tls", f"no TLS connection: {why}")
