"""Who is at the other end of a unix socket: a user of this machine, or somebody who is refused.

The kernel notes uid and pid of the process that connected (SO_PEERCRED). A uid says who somebody is only
among processes of our own user namespace, and a process of another pid namespace is a container, whose root
may be uid 0 here, too: both are refused, and use TLS and a token. /proc tells the namespaces to everybody;
that its entry is still that of the process which connected is proved by a pidfd (SO_PEERPIDFD, Linux 6.5).
"""

from __future__ import annotations

import os
import select
import socket
import struct
from dataclasses import dataclass

from bitfusion_pool.access.tokens import Grant
from bitfusion_pool.messages.refusal_codes import WRONG_PEER
from bitfusion_pool.own_files import user_name
from bitfusion_pool.service.refusal import Refusal

_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid
_SO_PEERPIDFD = 77  # asm-generic/socket.h; Python has no name for it
_NOBODY = 0xFFFFFFFF
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Peer:
    """Who a client is: a user of this machine, or the name of a token.

    Attributes:
        uid: The user's number; of a name the one that the ledger gave it, which is no user's.
        user: For people.
        pid: For people: the process that connected; 0 on another machine.
        address: For people: where a client on another machine connected from.
        token: What the token allows; None for a user of this machine.
    """

    uid: int
    user: str
    pid: int
    address: str = ""
    token: Grant | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it is on another machine, as far as we know."""
        return self.token is not None

    @property
    def is_issuer(self) -> bool:
        """Whether it may issue tokens, and nothing else."""
        return self.token is not None and self.token.may_issue is not None

    @property
    def is_administrator(self) -> bool:
        """Root and the service's own account may end what is not theirs; nobody may over the network."""
        return not self.is_remote and self.uid in (0, os.geteuid())


@dataclass(frozen=True, slots=True)
class Namespaces:
    """What tells whether two processes share their user and pid namespaces."""

    uid_map: str
    pid_depth: int


def connected_uid(connection: socket.socket) -> int:
    """The uid that connected, whatever it is worth: for counting connections."""
    return _credentials(connection)[1]


def peer_of(connection: socket.socket, own: Namespaces) -> Peer:
    """The user who connected; `own` is from `own_namespaces`. Raises Refusal if the uid identifies none."""
    pid, uid = _credentials(connection)
    if uid in (overflow_uid(), _NOBODY) or pid <= 0:
        raise _container()
    with _Pidfd(connection) as pidfd:
        found, uids = _namespaces(pid)
        # without a pidfd: another process has this pid by now, or this one has changed its user
        if pidfd.has_ended() or not (pidfd.is_known or uid in uids):
            raise _ended()
    if found != own:
        raise _container()
    return Peer(uid, user_name(uid), pid)


def own_namespaces() -> Namespaces:
    """Those of this process."""
    return parse_namespaces(_read("/proc/self/status"), _read("/proc/self/uid_map"))[0]


def parse_namespaces(status: str, uid_map: str) -> tuple[Namespaces, tuple[int, ...]]:
    """Namespaces and uids (real, effective, saved, file system) of /proc/PID/status and uid_map. Pure."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    uids = tuple(int(word) for word in fields.get("Uid", "").split())
    return Namespaces(" ".join(uid_map.split()), len(fields.get("NSpid", "").split())), uids


def overflow_uid() -> int:
    """How users appear who have no number in our user namespace."""
    try:
        return int(_read("/proc/sys/kernel/overflowuid"))
    except (OSError, ValueError):
        return 65534


class _Pidfd:
    """The process that connected, as a descriptor that never means another one; none before Linux 6.5."""

    def __init__(self, connection: socket.socket) -> None:
        self._fd = -1
        try:
            (self._fd,) = struct.unpack("i", connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))
            self._ended = False
        except OSError as error:
            from errno import ENOPROTOOPT

            self._ended = error.errno != ENOPROTOOPT

    def __enter__(self) -> _Pidfd:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @property
    def is_known(self) -> bool:
        """Whether there is one."""
        return self._fd >= 0

    def has_ended(self) -> bool:
        """Whether the pid may be another process's by now."""
        if self._fd < 0:
            return self._ended
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(0))


def _namespaces(pid: int) -> tuple[Namespaces, tuple[int, ...]]:
    try:
        return parse_namespaces(_read(f"/proc/{pid}/status"), _read(f"/proc/{pid}/uid_map"))
    except OSError:
        raise _hidden() if _exists(pid) else _ended() from None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _credentials(connection: socket.socket) -> tuple[int, int]:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(found)
    return pid, uid


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(fd)


def _container() -> Refusal:
    return Refusal(
        WRONG_PEER,
        "this socket is for users of this machine, and you come from a container or another namespace; "
        "containers use TLS and a token",
        "ask the administrator of this pool for a token",
    )


def _ended() -> Refusal:
    return Refusal(
        WRONG_PEER, "the process that connected has ended, so nobody can tell whose this connection is"
    )


def _hidden() -> Refusal:
    return Refusal(
        WRONG_PEER,
        "the service cannot see the process that connected: /proc hides the processes of other users",
        "the administrator of this pool gives the service's account the group of that mount (hidepid, gid=)",
    )
