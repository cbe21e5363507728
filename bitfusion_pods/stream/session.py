"""A session put together: link, channels and mirrored folder in one loop without threads."""

from __future__ import annotations

import select

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_pods.stream.channels import Channels
from bitfusion_pods.stream.link import Link
from bitfusion_pods.stream.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bitfusion_pods.stream.frames import Frame


class Session:
    """One side of one. What else its owner polls for goes into `others`: descriptors and what to call.

    Args:
        name: 16 bytes.
        of_pod: Whether this is the pod's side.
    """

    def __init__(self, name: bytes, *, of_pod: bool) -> None:
        self._of_pod = of_pod
        self.link = Link(name)
        self.channels = Channels(self.link, of_pod=of_pod, on_open=self._on_open)
        self.mirror: Mirror | None = None
        self.others: dict[int, Callable[[], object]] = {}
        self.writing: set[int] = set()
        """Those of them that are polled for writing, too."""

    def mirror_folder(self, folder: str, sockets: Sequence[str] = ()) -> None:
        """From now on sockets of this folder appear in the peer's, and files of a client's, too.

        `sockets` are the peer's, as far as they are known. Raises ProtocolError.
        """
        self.mirror = Mirror(self.link, self.channels, folder, sends_files=not self._of_pod)
        for name in sockets:
            self.mirror.listen(name.encode())
        self.mirror.look()

    def _on_open(self, number: int, name: bytes) -> None:
        if self.mirror is None:
            self.channels.refuse(number)
        else:
            self.mirror.open(number, name)

    def turn(self, seconds: float, take: Callable[[Frame], object]) -> None:
        """Wait so long at most, and do what can be done.

        `take` gets the frames that are for the owner, each before those that came after it: what is sent to a
        program comes right behind the word that starts it.

        Raises:
            Lost: The connection is over. Call it again, with or without the next one.
            ProtocolError: The session is over.
        """
        link, mirror, poll = self.link, self.mirror, select.poll()
        link.beat()
        link.flush()
        if mirror is not None:
            seconds = min(seconds, mirror.seconds_to_next_look)
            mirror.register(poll)
        if link.connection is not None:
            poll.register(link.connection, select.POLLIN | (select.POLLOUT if link.wants_write else 0))
            if link.connection.has_more:
                seconds = 0.0  # TLS has more than it has given
        self.channels.register(poll)
        for fd in self.others:
            poll.register(fd, select.POLLIN | (select.POLLOUT if fd in self.writing else 0))
        ready = dict(poll.poll(seconds * 1000))
        for fd in self.others.keys() & ready.keys():
            if fd in self.others:  # an earlier one may have taken it away
                self.others[fd]()
        for frame in [] if link.connection is None else link.read():
            if not self._take(frame):
                take(frame)
        if mirror is not None:
            mirror.serve(ready)  # before the channels: a file was written before somebody speaks of it
        self.channels.serve(ready)
        link.flush()

    def _take(self, frame: Frame) -> bool:
        return self.channels.take(frame) or (self.mirror is not None and self.mirror.take(frame))

    def close(self) -> None:
        """End this side."""
        self.channels.close()
        if self.mirror is not None:
            self.mirror.close()
        self.link.detach()
