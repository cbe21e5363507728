"""The connection of a command to a service on another machine: TCP and TLS, with one time limit for both."""

from __future__ import annotations

import socket
import ssl
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.one_line import words_of
from bitfusion_pool.access.tls import handshake_problem, tls_reason
from bitfusion_pool.client.connections.connection import Connection
from bitfusion_pool.client.connections.service_errors import gone, not_reached, slow
from bitfusion_pool.messages.from_client import SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from bitfusion_pool.access.addresses import Address
    from bitfusion_pool.client.connections.service_errors import ServiceAway
    from bitfusion_pool.messages.message import Message

_AT_ONCE = 1 << 16
_WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class NetworkConnection(Connection):
    """One connection, with a service whose certificate was checked.

    Args:
        address: Where it listens; the certificate must be for this host.
        context: From `access.tls.client_context`.
        until: By `time.monotonic`: until then it must stand.
        answer_s: How long to wait for an answer, and for the service to read.

    Raises:
        ServiceAway: There is no connection; `reason` says why, in the real client's words.
    """

    def __init__(self, address: Address, context: ssl.SSLContext, until: float, answer_s: float) -> None:
        super().__init__(str(address), answer_s)
        tcp, self.segment = connect_tcp(address, until)
        with tcp:
            try:
                self._socket = context.wrap_socket(
                    tcp, do_handshake_on_connect=False, server_hostname=address.host
                )
            except OSError as error:  # it was reset since then
                raise self._not_read(error) from None
        try:
            self._shake_hands(address.host, until)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """For `poll`; messages that were read with others are not seen there: ask `next_message(0)` first."""
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """See `Connection`."""
        data = message.format()
        until = time.monotonic() + self.answer_s
        try:
            while data:
                try:
                    data = data[self._socket.send(data) :]
                except _WOULD_BLOCK as error:
                    if not self._ready_for(error, until):
                        raise slow(self.place, self.answer_s) from None
        except OSError as error:
            self._raise_last_words()
            raise gone(self.place, _why(error)) from None

    @property
    def tls_version(self) -> str:
        """``TLSv1.3``, for people."""
        return str(self._socket.version())

    def certificate_ends_at(self) -> float:
        """When the service's certificate ends, in seconds since the epoch. Slow."""
        certificate = self._socket.getpeercert() or {}
        return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))

    def close(self) -> None:
        """Hang up; in a process that was forked only this process's copy.

        On a network that lets it through, and without a proxy, the service takes it for the client's end.
        """
        self._socket.close()

    def give_up(self) -> None:
        """See `Connection`: the service is told that the connection is broken, if it is told anything."""
        from _struct import pack

        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        except OSError:
            pass  # it is not open any more
        self._socket.close()

    def _shake_hands(self, host: str, until: float) -> None:
        while True:
            try:
                self._socket.do_handshake()
                return
            except _WOULD_BLOCK as error:
                if not self._ready_for(error, until):
                    raise not_reached(self.place, "net/http: TLS handshake timeout") from None
            except ssl.SSLError as error:
                kind = "x509" if isinstance(error, ssl.SSLCertVerificationError) else "tls"
                raise not_reached(self.place, f"{kind}: {handshake_problem(error, host)}") from None
            except OSError as error:
                raise self._not_read(error) from None

    def _not_read(self, error: OSError) -> ServiceAway:
        return not_reached(self.place, f"read tcp {self.place}: {words_of(error).lower()}")

    def _is_readable(self, seconds: float) -> bool:
        return bool(self._socket.pending()) or _poll(self._socket, False, seconds)

    def _read(self) -> None:
        try:
            data = self._socket.recv(_AT_ONCE)
        except _WOULD_BLOCK:
            return  # a part of a record, or a ticket of the session
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            data = b""
        except OSError as error:
            raise gone(self.place, _why(error)) from None
        self._take(data)

    def _ready_for(self, wanted: OSError, until: float) -> bool:
        left = until - time.monotonic()
        return left > 0 and _poll(self._socket, isinstance(wanted, ssl.SSLWantWriteError), left)


def connect_tcp(address: Address, until: float) -> tuple[socket.socket, int]:
    """A TCP connection, and the maximum segment size that was announced for it; see `Hello`.

    Several addresses of one name are tried one after another. Raises ServiceAway.
    """
    found = resolve(address, until)
    why = "i/o timeout"
    for position, (family, target) in enumerate(found):
        now = time.monotonic()
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            segment = _choose_segment(connection)
            share = now + (until - now) / (len(found) - position)
            why = _connect(connection, target, share)
            if not why:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection, segment
        except BaseException:
            connection.close()
            raise
        connection.close()
    raise not_reached(str(address), f"dial tcp {address}: {why}")


def _choose_segment(connection: socket.socket) -> int:
    from os import urandom

    segment = SEGMENTS[urandom(1)[0] % len(SEGMENTS)]
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
    except OSError:  # a system without
        return 0
    return segment


def _connect(connection: socket.socket, target: tuple[Any, ...], until: float) -> str:
    """Why there is no connection, as Go says it; empty if there is one."""
    from errno import EINPROGRESS
    from os import strerror

    error = connection.connect_ex(target)
    if error == EINPROGRESS:
        if not _poll(connection, True, max(0.0, until - time.monotonic())):
            return "i/o timeout"
        error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return f"connect: {strerror(error).lower()}" if error else ""


def resolve(address: Address, until: float) -> Sequence[tuple[int, tuple[Any, ...]]]:
    """The targets of an address, for sockets of the family before each. Raises ServiceAway.

    A name is looked up beside, because the system's resolver knows no time limit.
    """
    try:
        return _looked_up(address, socket.AI_NUMERICHOST)
    except OSError:
        pass
    import _thread

    results: list[Sequence[tuple[int, tuple[Any, ...]]] | OSError] = []
    done = _thread.allocate_lock()
    done.acquire()

    def look_up() -> None:
        try:
            results.append(_looked_up(address, 0))
        except OSError as error:
            results.append(error)
        done.release()

    _thread.start_new_thread(look_up, ())
    done.acquire(timeout=max(0.0, until - time.monotonic()))
    if not results:
        raise not_reached(str(address), f"dial tcp: lookup {address.host}: i/o timeout")
    if isinstance(results[0], OSError):
        raise not_reached(str(address), f"dial tcp: lookup {address.host}: no such host")
    return results[0]


def _looked_up(address: Address, flags: int) -> Sequence[tuple[int, tuple[Any, ...]]]:
    found = socket.getaddrinfo(address.host, address.port, 0, socket.SOCK_STREAM, 0, flags)
    return [(family, target) for family, _, _, _, target in found]


def _poll(connection: socket.socket, for_writing: bool, seconds: float) -> bool:
    from select import POLLIN, POLLOUT, poll

    poller = poll()
    poller.register(connection.fileno(), POLLOUT if for_writing else POLLIN)
    return bool(poller.poll(seconds * 1000))


def _why(error: OSError) -> str:
    return tls_reason(error) if isinstance(error, ssl.SSLError) else words_of(error)
