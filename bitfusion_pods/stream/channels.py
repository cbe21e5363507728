"""All channels of a session: who has which number, whose turn it is, and the frames that are about them."""

from __future__ import annotations

import os
import select

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.stream.channel import Channel
from bitfusion_pods.stream.frames import Frame, Kind, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_pods.stream.link import Link

STDIN, STDOUT, STDERR = 1, 2, 3
"""The program's, which exist from SPAWN on. A terminal is the first of them, in both directions."""

MOST = 256
"""Channels at once. One more is refused: whoever connects is told, as by a program that has too many."""

_FIRST = 16


class Channels:
    """Of one side. Those that it opens have even numbers on the client's side and odd ones on the pod's.

    `on_open` is told of a channel that the peer opens, by number and name.
    """

    def __init__(
        self, link: Link, *, of_pod: bool, on_open: Callable[[int, bytes], None] = lambda *_: None
    ) -> None:
        self._link = link
        self._of_pod = of_pod
        self._next = _FIRST + of_pod
        self._on_open = on_open
        self._channels: dict[int, Channel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    def add(self, number: int, source: int | None, sink: int | None, *, shared: bool = False) -> Channel:
        """A channel of this number between these descriptors, which it owns from here on."""
        made = self._channels[number] = Channel(self._link, number, source, sink, shared=shared)
        self._drop_if_over(made)  # between nothing and nothing: what comes for it is passed over
        return made

    def open(self, name: bytes, fd: int) -> None:
        """A new channel for a connection, of whose name the peer is told; refused if there are too many."""
        made = Channel(self._link, self._next, fd, fd)
        if len(self._channels) >= MOST:
            made.close()
            return
        self._channels[self._next] = made
        self._link.put(Kind.OPEN, self._next, name)
        self._next += 2

    def connect(self, number: int, fd: int) -> None:
        """The connection to which a channel leads that the peer has opened."""
        channel = self._channels.get(number)
        if channel is None:  # the peer has given it up
            os.close(fd)
        else:
            channel.connect(fd)

    def refuse(self, number: int) -> None:
        """A channel that the peer has opened leads nowhere here."""
        self._channels.pop(number, None)
        self._link.put(Kind.RESET, number)

    def end(self, channel: Channel) -> None:
        """End one in both directions, and tell the peer; nothing where it is over."""
        if self._channels.get(channel.number) is channel:
            self._reset(channel)

    def close(self) -> None:
        """End all, on this side."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    @property
    def wants_write(self) -> bool:
        """Whether something waits for somebody here who reads."""
        return any(channel.wants_write for channel in self._channels.values())

    # -- frames ------------------------------------------------------------------------------------

    def take(self, frame: Frame) -> bool:
        """Whether it was about channels. Raises ProtocolError."""
        kind, number, payload = frame
        if kind is Kind.OPEN:
            self._take_open(number, payload)
            return True
        if kind not in (Kind.DATA, Kind.EOF, Kind.CREDIT, Kind.RESET):
            return False
        channel = self._channels.get(number)
        if channel is None:
            return True  # it has ended here, and the peer has not heard of it yet
        if kind is Kind.DATA:
            channel.take(payload)
        elif kind is Kind.EOF:
            channel.take_end()
        elif kind is Kind.CREDIT:
            channel.add_credit(int.from_bytes(payload, "big"))
        else:
            channel.close()
        self._drop_if_over(channel)
        return True

    def _take_open(self, number: int, name: bytes) -> None:
        if number < _FIRST or number % 2 == self._of_pod or number in self._channels:
            raise ProtocolError(f"it opens channel {number}, which it may not open")
        if len(self._channels) >= MOST:
            self.refuse(number)
            return
        self._channels[number] = Channel.pending(self._link, number)
        self._on_open(number, name)

    # -- turns -------------------------------------------------------------------------------------

    def register(self, poll: select.poll) -> None:
        """What to poll for now: sources only while the link has room."""
        masks: dict[int, int] = {}
        room = self._link.has_room
        for channel in self._channels.values():
            if room and channel.wants_read and channel.source is not None:
                masks[channel.source] = masks.get(channel.source, 0) | select.POLLIN
            if channel.wants_write and channel.sink is not None:
                masks[channel.sink] = masks.get(channel.sink, 0) | select.POLLOUT
        for fd, mask in masks.items():
            poll.register(fd, mask)

    def serve(self, ready: dict[int, int]) -> None:
        """Do what can be done: descriptors with their events, from `poll`; others' are passed over."""
        for channel in [
            each for each in self._channels.values() if each.sink in ready or each.source in ready
        ]:
            events = ready.get(-1 if channel.sink is None else channel.sink, 0)
            if channel.wants_write and events & ~select.POLLIN and not channel.write():
                self._reset(channel)
                continue
            events = ready.get(-1 if channel.source is None else channel.source, 0)
            if channel.wants_read and events & ~select.POLLOUT and self._link.has_room:
                channel.read()
            self._drop_if_over(channel)

    def drain(self) -> bool:
        """After the program's end: pass on what sources hold, as credit allows; whether that was any."""
        more = False
        for channel in list(self._channels.values()):
            while channel.source is not None and channel.wants_read and channel.read():
                more = True
            self._drop_if_over(channel)
        return more

    @property
    def all_sent(self) -> bool:
        """Whether all sources have ended."""
        return all(channel.source_ended for channel in self._channels.values())

    @property
    def waits_for_credit(self) -> bool:
        """Whether a source cannot be read because its reader on the other side is slow."""
        return any(not channel.source_ended and not channel.wants_read for channel in self._channels.values())

    def _reset(self, channel: Channel) -> None:
        self._link.put(Kind.RESET, channel.number)
        channel.close()
        self._drop_if_over(channel)

    def _drop_if_over(self, channel: Channel) -> None:
        if channel.is_over:
            channel.close()
            self._channels.pop(channel.number, None)
