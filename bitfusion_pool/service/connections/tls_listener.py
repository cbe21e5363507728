"""The port for clients on other machines: its certificate, and handshakes bounded in time and number."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable

from bitfusion_client.errors import ClientFailed, PoolUnreadable
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.access.tls import server_context
from bitfusion_pool.service.connections.acceptor import BACKLOG, Acceptor
from bitfusion_pool.service.connections.connection_counts import Strangers
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


def source_of(host: str) -> str:
    """Which addresses count as one machine: an IPv4 address, or 64 bits of an IPv6 address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        address = address.ipv4_mapped
    return str(address)


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
    """Takes connections from other machines."""

    def __init__(
        self,
        listening: socket.socket,
        loop: asyncio.AbstractEventLoop,
        context: Callable[[], ssl.SSLContext],
        strangers: Strangers,
        pace: HandshakePace,
        connected: Callable[[TlsStream, str], None],
        refusals: RefusalLog,
        metrics: Metrics,
    ) -> None:
        self._metrics = metrics
        self._loop = loop
        self._context = context
        self._strangers = strangers
        self._pace = pace
        self._connected = connected
        self._refusals = refusals
        self._linger = Linger(loop)
        self._acceptor = Acceptor(listening, loop, self._take)

    def close(self) -> None:
        """Take no more connections. Handshakes that are under way end by themselves."""
        self._acceptor.close()

    def _take(self, connected: socket.socket, address: object) -> None:
        assert isinstance(address, tuple)
        source = source_of(address[0])
        if not self._strangers.enter(source):
            # in words it would need a handshake
            self._refusals.refused(source, _no_tls("there are too many connections that show no token"))
            connected.close()
            return
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
        stream = TlsStream(connected, self._context(), self._linger)
        wait_s = self._pace.take_turn(source, self._loop.time(), HANDSHAKE_S)
        if wait_s == 0:
            self._begin(stream, source)
            return
        self._metrics.handshakes_delayed.inc()
        if wait_s is None:
            self._refuse(stream, source, OSError("this address makes too many handshakes"))
        else:
            self._loop.call_later(wait_s, self._begin, stream, source)

    def _begin(self, stream: TlsStream, source: str) -> None:
        timer = self._loop.call_later(HANDSHAKE_S, self._too_slow, stream, source)
        self._loop.add_reader(stream.fileno(), self._shake, stream, source, timer)

    def _shake(self, stream: TlsStream, source: str, timer: asyncio.TimerHandle) -> None:
        try:
            if not stream.shake_hands():
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:  # an SSLError is one
            timer.cancel()
            self._refuse(stream, source, error)
            return
        timer.cancel()
        self._loop.remove_reader(stream.fileno())
        self._connected(stream, source)

    def _too_slow(self, stream: TlsStream, source: str) -> None:
        self._refuse(stream, source, TimeoutError(f"no handshake within {HANDSHAKE_S:g} seconds"))

    def _refuse(self, stream: TlsStream, source: str, error: OSError) -> None:
        self._loop.remove_reader(stream.fileno())
        self._strangers.leave(source)
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        self._refusals.refused(source, _no_tls(str(reason).replace("_", " ").lower()))
        if reason == "HTTP_REQUEST":
            stream.refuse(_HTTP_ANSWER)
        else:
            stream.close()


def _no_tls(why: str) -> Refusal:
    return Refusal("no_tls", f"no TLS connection: {why}")
