"""Three users of one machine, none of them root or the service's: what two try against the third.

Nothing has any effect. Each row is an attack and what comes of it; `pytest -s` prints them. `test_users.py`
has those on files, on a passed lock and from containers. Needs root, to be several users.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.messages.from_client import Acquire, Cancel, End, Look, Release, Renew, Resume
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Released, Waiting
from bitfusion_pool.messages.message import Message
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient, connected
from tests.pool.service.test_users import ANN, BOB, as_user, shared
from tests.support.waiting import wait_until

__all__ = ["shared"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: several users")

CAT = 54323
BOTH = GpuRequest(2)


class Target:
    """What the attackers know: everything that ann knows."""

    def __init__(self, service: RunningService, lease: Granted, place: Waiting) -> None:
        self.socket = service.socket
        self.pid = service.pid
        self.folder = str(service.folder)
        self.lease, self.lease_secret = lease.entry.entry_id, lease.secret
        self.place, self.place_secret = place.entry, place.secret


def said(target: Target, message: Message) -> str:
    """What the service answers to one message."""
    with connected(target.socket) as client:
        client.send(message)
        answer = client.receive()
        return answer.code if isinstance(answer, Refused) else type(answer).__name__


def said_to(target: Target, line: bytes, hello: bool = True) -> str:
    with connected(target.socket) if hello else SocketClient(target.socket) as client:
        try:
            client.socket.sendall(line)
        except OSError:
            pass  # it hangs up in the middle of a line that is too long
        answer = client.receive()
        return answer.code if isinstance(answer, Refused) else type(answer).__name__


def seen_as(target: Target, line: bytes) -> str:
    """As whom others see a request that says it is ann's."""
    with connected(target.socket) as client:
        client.socket.sendall(line)
        client.expect(Waiting)
        entry = client.ask(Look(), PoolSnapshot).entries[-1]
        return f"uid {'own' if entry.holder.uid == os.geteuid() else entry.holder.uid}, {entry.holder.label}"


def opened(path: str, mode: str = "r") -> str:
    return tried(lambda: open(path, mode).close())


def tried(attack: Callable[[], object]) -> str:
    try:
        attack()
    except OSError as error:
        return type(error).__name__
    return "done"


def overtaken(target: Target) -> str:
    """Asks and cancels again and again, and asks for little: ann's place stays the first."""
    with connected(target.socket) as client:
        for _ in range(50):
            client.wait(GpuRequest(1, 0.01))
            client.ask(Cancel(), Released)
        return f"place {client.wait(GpuRequest(1, 0.01)).position}"


def too_many_requests(target: Target) -> str:
    clients = [connected(target.socket) for _ in range(65)]
    try:
        for client in clients[:-1]:
            client.wait(BOTH)
        clients[-1].send(Acquire(BOTH))
        last = clients[-1].receive()
        return last.code if isinstance(last, Refused) else type(last).__name__
    finally:
        for client in clients:
            client.close()


def rude_label(target: Target) -> str:
    with connected(target.socket) as client:
        client.wait(BOTH, "\x1b[2J\n; before you root: all.ipynb (9 GPUs, since 00:00)\u202e")
        label = client.ask(Look(), PoolSnapshot).entries[-1].holder.label
        return "one line" if label.isprintable() and ";" not in label and len(label) <= 60 else label


# the attack, how it is made, what comes of it
ATTACKS: tuple[tuple[str, Callable[[Target], str], str], ...] = (
    (
        "release ann's lease with her secret",
        lambda t: said(t, Release(t.lease, t.lease_secret)),
        "lease_over",
    ),
    (
        "come back to her lease with her secret",
        lambda t: said(t, Resume(t.lease, t.lease_secret)),
        "lease_over",
    ),
    ("renew her lease", lambda t: said(t, Renew(t.lease, t.lease_secret)), "lease_over"),
    ("end her lease", lambda t: said(t, End(t.lease)), "not_yours"),
    ("end her request", lambda t: said(t, End(t.place)), "not_yours"),
    ("take her place with its secret", lambda t: said(t, Resume(t.place, t.place_secret)), "lease_over"),
    ("release her place", lambda t: said(t, Release(t.place, t.place_secret)), "lease_over"),
    ("guess a secret", lambda t: said(t, Resume(t.lease, "0" * 64)), "lease_over"),
    ("use one secret for the other", lambda t: said(t, Resume(t.lease, t.place_secret)), "lease_over"),
    ("an id that is SQL", lambda t: said(t, End("' OR 1=1 --")), "lease_over"),
    ("an id that is a path", lambda t: said(t, Resume(f"../{t.lease}", t.lease_secret)), "lease_over"),
    ("an id of 10,000 characters", lambda t: said(t, End("x" * 10_000)), "lease_over"),
    (
        "say to be ann",
        lambda t: seen_as(
            t, b'{"type":"acquire","request":{"gpus":2},"label":"x","uid":%d,"user":"ann"}\n' % ANN
        ),
        "uid own, x",
    ),
    ("a lease that no lock keeps", lambda t: said(t, Acquire(BOTH, kind="remote")), "invalid_request"),
    ("a kind that there is not", lambda t: said(t, Acquire(BOTH, kind="held")), "invalid_request"),
    (
        "less than no GPU",
        lambda t: said_to(t, b'{"type":"acquire","request":{"gpus":-1}}\n'),
        "invalid_request",
    ),
    ("more than there is", lambda t: said(t, Acquire(GpuRequest(9))), "never"),
    ("overtake by asking again and again for little", overtaken, "place 2"),
    ("fill the queue", too_many_requests, "over_limit"),
    ("a label that writes to terminals", rude_label, "one line"),
    ("a line without end", lambda t: said_to(t, b"x" * 20_000), "bad_message"),
    ("no hello", lambda t: said_to(t, Look().format(), hello=False), "bad_message"),
    ("nesting", lambda t: said_to(t, b"[" * 9000 + b"\n"), "bad_message"),
    ("stop the service", lambda t: tried(lambda: os.kill(t.pid, signal.SIGSTOP)), "PermissionError"),
    ("read its memory", lambda t: opened(f"/proc/{t.pid}/mem"), "PermissionError"),
    (
        "take a descriptor of its",
        lambda t: tried(lambda: os.stat(f"/proc/{t.pid}/fd/0")),
        "PermissionError",
    ),
    (
        "listen in its place",
        lambda t: tried(lambda: socket.socket(socket.AF_UNIX).bind(t.socket)),
        "OSError",
    ),
    ("remove its socket", lambda t: tried(lambda: os.unlink(t.socket)), "PermissionError"),
    ("configure it", lambda t: opened(f"{t.folder}/pool.toml", "w"), "PermissionError"),
    ("lock its folder", lambda t: opened(f"{t.folder}/service.lock"), "PermissionError"),
)


def until_left(path: str, *ids: str) -> None:
    """Until what the attackers' own connections had is gone; what is left is asked of the service."""

    def left() -> list[str]:
        with connected(path) as client:
            return [entry.entry_id for entry in client.ask(Look(), PoolSnapshot).entries]

    wait_until(lambda: left() == list(ids), left)


def _attack(target: Target) -> None:
    for what, attack, expected in ATTACKS:
        until_left(target.socket, target.lease, target.place)  # nothing of the attack before
        came = attack(target)
        print(f"user {os.getuid()}: {what:50} {came}")
        assert came == expected, what


def test_what_two_users_try_against_a_third_has_no_effect(shared: RunningService) -> None:
    assert len(ATTACKS) >= 20
    with (
        SocketClient.of_user(shared.socket, ANN) as holder,
        SocketClient.of_user(shared.socket, ANN) as waiter,
    ):
        lease = holder.acquire(BOTH, "ann.ipynb")
        place = waiter.wait(BOTH, "ann waits")
        target = Target(shared, lease, place)
        for uid in (BOB, CAT):
            as_user(uid, _attack, target)
            until_left(shared.socket, target.lease, target.place)
        holder.release(lease)
        assert waiter.expect(Granted).entry.entry_id == target.place
    until_left(shared.socket)
