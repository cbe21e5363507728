"""What /proc says of a peer, read: tables. Real peers are in `test_users`."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bitfusion_pool.service.connections import peer
from bitfusion_pool.service.connections.peer import Namespaces, own_namespaces, parse_namespaces
from bitfusion_pool.service.refusal import Refusal

STATUS = "Name:\tpython\nUid:\t1000\t1001\t1002\t1003\nNSpid:\t77\nThreads:\t1\n"
WHOLE = "         0          0 4294967295\n"


@pytest.mark.parametrize(
    ("status", "uid_map", "expected"),
    [
        (STATUS, WHOLE, Namespaces("0 0 4294967295", 1)),
        (STATUS.replace("NSpid:\t77", "NSpid:\t77\t1"), WHOLE, Namespaces("0 0 4294967295", 2)),
        (STATUS, "0 1000 1\n", Namespaces("0 1000 1", 1)),
        (STATUS, "", Namespaces("", 1)),
    ],
)
def test_the_namespaces_of_a_process(status: str, uid_map: str, expected: Namespaces) -> None:
    found, uids = parse_namespaces(status, uid_map)
    assert found == expected
    assert uids == (1000, 1001, 1002, 1003)


def test_our_own_namespaces_are_known() -> None:
    own = own_namespaces()
    assert own.pid_depth >= 1
    assert own.uid_map


def test_a_name_that_imitates_a_field_is_no_field() -> None:
    """A program chooses its name; the kernel escapes line ends in it."""
    found, uids = parse_namespaces(STATUS.replace("python", "x\\nUid:\\t0"), WHOLE)
    assert (found.pid_depth, uids[0]) == (1, 1000)


def test_a_hidden_process_is_told_from_one_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(path: str) -> str:
        raise FileNotFoundError(2, "No such file", path)

    monkeypatch.setattr(peer, "_read", hidden)
    with pytest.raises(Refusal, match="/proc hides the processes of other users") as refused:
        peer._namespaces(1)
    assert refused.value.next_step == (
        "the administrator of this pool gives the service's account the group of that mount (hidepid, gid=)"
    )
    with pytest.raises(Refusal, match="the process that connected has ended"):
        peer._namespaces(2**22 + 1)


def test_a_pid_that_is_another_processs_by_now_is_noticed(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/proc shows the new process; the pidfd of the connection is still that of the one that has ended."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(base / "socket"))
        listening.listen()
        child = os.fork()
        if not child:
            socket.socket(socket.AF_UNIX).connect(str(base / "socket"))
            os._exit(0)
        connected, _ = listening.accept()
        with connected:
            own = own_namespaces()
            monkeypatch.setattr(peer, "_namespaces", lambda pid: (own, (os.getuid(),)))
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            with pytest.raises(Refusal, match="the process that connected has ended"):
                peer.peer_of(connected, own)
            os.waitpid(child, 0)
            with pytest.raises(Refusal, match="the process that connected has ended"):
                peer.peer_of(connected, own)
