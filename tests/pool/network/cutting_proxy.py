"""A network between clients and a service that a test can cut: a TCP proxy on loopback.

What a network does to connections, as TCP ends see it:

    hold      a cut: bytes and closes stay on the way, new connections hang; `flow` lets all of it arrive
    strand    a router forgot: a cut that never ends, for the connections there are; new ones pass
    reset     both ends are told that the connection is gone
    drop      only one end is told: half-open
    end       the same in order, as if the other end had closed: only a proxy does so
    refuse    nobody listens
    delay     every byte comes later, in order

`as_router` the service is shown the maximum segment size that the client has announced, and is told that a
connection has ended in order only if the client says so: a network as its ends see it. Otherwise it is what
makes connections of its own, such as a load balancer.

One thread owns the sockets, so a test may call anything at any time. Links and the bytes in them are bounded,
as a network's are: what has no room waits in the sender's socket.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from bitfusion_pool.service.connections.route import announced_segment
from tests.support.machine import scaled
from tests.support.ports import free_port, return_port

MOST_LINKS = 1024
"""A connection more is reset."""

MOST_BYTES = 1 << 18
"""That one direction of a link keeps."""

_PIECE = 1 << 16


class Side(enum.Enum):
    """The two ends of a link."""

    CLIENT = "client"
    SERVICE = "service"


class _Flow:
    """One direction of a link: bytes from `source` on their way to `sink`."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.kept = 0
        self.ended = False  # the source has said so
        self.passed_end = False  # and the sink was told

    def read(self, delay_s: float) -> None:
        piece = self.source.recv(_PIECE)
        if piece:
            self.pieces.append((time.monotonic() + delay_s, piece))
            self.kept += len(piece)
        else:
            self.ended = True

    def write(self) -> None:
        now = time.monotonic()
        while self.pieces and self.pieces[0][0] <= now:
            due, piece = self.pieces.popleft()
            try:
                sent = self.sink.send(piece)
            except BlockingIOError:
                sent = 0
            self.kept -= sent
            if sent < len(piece):
                self.pieces.appendleft((due, piece[sent:]))
                return
        if self.ended and not self.pieces and not self.passed_end:
            self.passed_end = True
            self.sink.shutdown(socket.SHUT_WR)


class _Link:
    """One connection of a client, and the one to the service that was made for it."""

    def __init__(self, client: socket.socket, service: socket.socket) -> None:
        self.ends = {Side.CLIENT: client, Side.SERVICE: service}
        self.flows = {Side.CLIENT: _Flow(client, service), Side.SERVICE: _Flow(service, client)}
        self.stranded = False

    def leave(self, side: Side, *, told: bool) -> None:
        """Close one end; `told`: by a reset, or else as if it had closed by itself."""
        end = self.ends[side]
        with contextlib.suppress(OSError):
            if told:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()

    @property
    def over(self) -> bool:
        return all(flow.passed_end for flow in self.flows.values()) or all(
            end.fileno() < 0 for end in self.ends.values()
        )


class _Places(dict[int, tuple[_Link, Side]]):
    """Where in which link a descriptor is."""


class CuttingProxy:
    """Stands before one port of 127.0.0.1. A context manager; `port` is where clients find it."""

    def __init__(self, target: int, as_router: bool = False) -> None:
        self.as_router = as_router
        self.target = target
        """The port that new connections go to; may be changed at any time."""
        self.port = free_port()
        self.accepted = 0
        """How many connections have been let through so far."""
        self._held: set[Side] = set()
        self._delay_s = 0.0
        self._links: list[_Link] = []
        self._listener: socket.socket | None = None
        self._orders: deque[tuple[Callable[[], None], threading.Event]] = deque()
        self._wake_read, self._wake_write = os.pipe()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="cutting proxy", daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._listen()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._order(self._end)
        self._thread.join(scaled(5))
        assert not self._thread.is_alive(), "the cutting proxy did not end"
        os.close(self._wake_read)
        os.close(self._wake_write)
        return_port(self.port)

    # -- what a test may do ------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``, as a file of servers names it."""
        return f"127.0.0.1:{self.port}"

    @property
    def links(self) -> int:
        """How many connections there are, stranded ones included."""
        return len(self._links)

    def hold(self, *sides: Side) -> None:
        """Nothing sent by these sides arrives any more (without one: by both), and nobody is told."""
        self._order(lambda: self._held.update(sides or Side))

    def flow(self) -> None:
        """The end of `hold`: what was on the way arrives."""
        self._order(self._held.clear)

    def strand(self) -> None:
        """Whatever is sent on the connections that there are never arrives; new ones are let through."""

        def strand() -> None:
            for link in self._links:
                link.stranded = True

        self._order(strand)

    def reset(self) -> None:
        """Both ends of every connection are told that it is gone."""

        def reset() -> None:
            for link in self._links:
                link.leave(Side.CLIENT, told=True)
                link.leave(Side.SERVICE, told=True)

        self._order(reset)

    def drop(self, told: Side) -> None:
        """Every connection is gone, and only this side is told; for the other it is as after `strand`."""

        def drop() -> None:
            for link in self._links:
                link.stranded = True
                link.leave(told, told=True)

        self._order(drop)

    def end(self, told: Side) -> None:
        """As `drop`, and this side is told that the other has ended the connection in order."""
        assert not self.as_router

        def end() -> None:
            for link in self._links:
                link.stranded = True
                link.leave(told, told=False)

        self._order(end)

    def refuse(self) -> None:
        """New connections are refused, those that there are stay; until `accept`."""
        self._order(self._refuse)

    def accept(self) -> None:
        """The end of `refuse`."""
        self._order(self._listen)

    def delay(self, seconds: float) -> None:
        """Each piece sent from now on takes so long."""

        def delay() -> None:
            self._delay_s = seconds

        self._order(delay)

    # -- the thread --------------------------------------------------------------------------------

    def _order(self, action: Callable[[], None]) -> None:
        """Have something done by the thread, and wait until it is."""
        done = threading.Event()
        self._orders.append((action, done))
        os.write(self._wake_write, b"\0")
        assert done.wait(scaled(10)), "the cutting proxy does not answer"

    def _listen(self) -> None:
        if self._listener is None:
            listener = socket.create_server(("127.0.0.1", self.port), backlog=256)
            listener.setblocking(False)
            self._listener = listener

    def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _end(self) -> None:
        self._ending = True
        self._refuse()
        for link in self._links:
            for side in Side:
                link.leave(side, told=True)
        self._links.clear()

    def _run(self) -> None:
        while not self._ending:
            readers, writers, watched = self._interests()
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            for fd in readers.keys() | writers.keys():
                poll.register(
                    fd, (select.POLLIN if fd in readers else 0) | (select.POLLOUT if fd in writers else 0)
                )
            for fd in watched:
                poll.register(fd, select.POLLRDHUP)
            if self._listener is not None and not self._held:
                poll.register(self._listener, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(self._timeout_ms())}
            if self._obey():
                continue  # descriptors may mean something else now
            if self._listener is not None and self._listener.fileno() in ready:
                self._accept()
            for fd in ready & watched.keys():
                link, side = watched[fd]
                link.leave(side, told=False)
            for fd in ready & readers.keys():
                self._try(readers[fd], lambda flow: flow.read(self._delay_s))
            for fd in ready & writers.keys():
                self._try(writers[fd], _Flow.write)
            self._forget_ended()

    def _interests(self) -> tuple[_Places, _Places, _Places]:
        """By descriptor: flows to read, flows to write, and the ends of stranded links."""
        readers, writers, watched = _Places(), _Places(), _Places()
        now = time.monotonic()
        for link in self._links:
            for side, flow in link.flows.items():
                if link.stranded:
                    if flow.source.fileno() >= 0:
                        watched[flow.source.fileno()] = link, side
                elif side not in self._held:
                    if not flow.ended and flow.kept < MOST_BYTES:
                        readers[flow.source.fileno()] = link, side
                    if (flow.pieces and flow.pieces[0][0] <= now) or (
                        flow.ended and not flow.pieces and not flow.passed_end
                    ):
                        writers[flow.sink.fileno()] = link, side
        return readers, writers, watched

    def _timeout_ms(self) -> int | None:
        """Until the next delayed piece is due."""
        due = [
            flow.pieces[0][0]
            for link in self._links
            if not link.stranded
            for side, flow in link.flows.items()
            if flow.pieces and side not in self._held
        ]
        later = [each for each in due if each > time.monotonic()]
        return max(1, int((min(later) - time.monotonic()) * 1000) + 1) if later else None

    def _try(self, where: tuple[_Link, Side], action: Callable[[_Flow], None]) -> None:
        """Do something with a flow; a connection that is gone at one end is reset at the other."""
        link, side = where
        if link.over:
            return
        try:
            action(link.flows[side])
        except BlockingIOError:
            pass
        except OSError:
            for each in Side:
                link.leave(each, told=True)

    def _obey(self) -> bool:
        """Do what the test has asked for; False if it has asked nothing."""
        obeyed = bool(self._orders)
        while self._orders:
            action, done = self._orders.popleft()
            os.read(self._wake_read, 1)
            action()
            self._forget_ended()
            done.set()
        return obeyed

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        try:
            if len(self._links) >= MOST_LINKS:
                raise OSError
            service = socket.socket()
            try:
                service.settimeout(1)
                if self.as_router:
                    segment = announced_segment(client)
                    service.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
                service.connect(("127.0.0.1", self.target))
            except OSError:
                service.close()
                raise
        except OSError:  # as a machine that answers for a service that is away
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            return
        for each in (client, service):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setblocking(False)
        self.accepted += 1
        self._links.append(_Link(client, service))

    def _forget_ended(self) -> None:
        for link in [link for link in self._links if link.over]:
            for side in Side:
                link.leave(side, told=False)
            self._links.remove(link)
