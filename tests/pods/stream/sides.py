"""Both ends of a stream with keys of their own, over real TCP on this machine."""

from __future__ import annotations

import select
import socket
import ssl
from pathlib import Path

from bitfusion_pods.stream import tls
from bitfusion_pods.stream.frames import Frame, Kind, ProtocolError
from bitfusion_pods.stream.greeting import Greeting
from bitfusion_pods.stream.handshake import Handshake
from bitfusion_pods.stream.link import Link, Lost
from tests.support.certificates import certified
from tests.support.waiting import Deadline

SESSION = b"0123456789abcdef"
CLIENT, POD, STRANGER = "client", "pod", "stranger"
LIMIT_S = 10.0


class Keys:
    """Files of the two sides, and of somebody else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (CLIENT, POD, STRANGER):
            (folder / name).mkdir()
            certified(name, authority=True).write(folder / name)

    def context(self, own: str, others: str) -> ssl.SSLContext:
        """That of one side."""
        mine, theirs = self.folder / own, self.folder / others
        return tls.context(*tls.own_files(str(mine)), (theirs / "tls.crt").read_text(), server=own == POD)


def tcp() -> tuple[socket.socket, socket.socket]:
    """Two ends of one connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


def finish(*handshakes: Handshake) -> list[Greeting]:
    """Let them go on until all are done. Raises Refused."""
    done: dict[Handshake, Greeting] = {}
    deadline = Deadline(LIMIT_S)
    while len(done) < len(handshakes):
        assert not deadline.passed, "the handshakes are not done"
        left = [each for each in handshakes if each not in done]
        writing = [each.connection for each in left if each.wants_write]
        select.select([each.connection for each in left], writing, [], 0.1)
        for each in left:
            theirs = each.go_on()
            if theirs is not None:
                done[each] = theirs
    return [done[each] for each in handshakes]


class Sides:
    """Two links of one session, which are connected as often as wanted."""

    def __init__(self, keys: Keys) -> None:
        self.client, self.pod = Link(SESSION), Link(SESSION)
        self._contexts = keys.context(CLIENT, POD), keys.context(POD, CLIENT)
        self.ends: tuple[socket.socket, socket.socket] | None = None

    def connect(self) -> None:
        """Over a new connection."""
        raw = tcp()
        dials = Handshake(raw[0], self._contexts[0], lambda _: self.client.greet(), server=False)
        listens = Handshake(raw[1], self._contexts[1], self._pod_greets, server=True)
        of_pod, of_client = finish(dials, listens)
        for link, handshake, theirs in ((self.client, dials, of_pod), (self.pod, listens, of_client)):
            assert handshake.said is not None
            link.attach(handshake.connection, handshake.said, theirs)

    def _pod_greets(self, theirs: Greeting | None) -> Greeting:
        assert theirs is not None
        if theirs.session != self.pod.session:
            raise ProtocolError("it is of another session")
        return self.pod.greet()

    def cut(self) -> None:
        """Both lose the connection; what was under way is gone."""
        for link in (self.client, self.pod):
            link.detach()

    def close(self) -> None:
        self.cut()


def exchange(link: Link) -> list[Frame]:
    """Send and read what can be now. Raises Lost."""
    link.flush()
    return read(link)


def read(link: Link) -> list[Frame]:
    """What has come, to keep: what DATA brings lies in the connection's buffer until its next read."""
    return [frame._replace(payload=bytes(frame.payload)) for frame in link.read()]


__all__ = ["CLIENT", "POD", "SESSION", "STRANGER", "Keys", "Lost", "Sides", "exchange", "finish", "tcp"]


def joined(frames: list[Frame]) -> list[tuple[Kind, int, bytes]]:
    """With what came of one DATA frame put together; two in a row have different channels, or are one."""
    whole: list[tuple[Kind, int, bytes]] = []
    for kind, channel, payload in frames:
        if kind is Kind.DATA and whole and whole[-1][:2] == (kind, channel):
            payload = whole.pop()[2] + payload
        whole.append((kind, channel, payload))
    return whole
