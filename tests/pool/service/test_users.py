"""Several users of one machine, none of them root or the service's: what each may do to the others.

Needs root, to be several users.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, RESERVED
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, End, Look, Release, Renew, Resume
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Released, Waiting
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient, connected
from tests.support.machine import scaled

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: several users")

SERVICE, ANN, BOB = 54300, 54321, 54322
BOTH = GpuRequest(2)


class AccountService(RunningService):
    """The service under an account of its own, as systemd runs it."""

    def __init__(self, base: Path, *options: str) -> None:
        super().__init__(base, *options)
        for path in (base / "run", self.folder):
            path.mkdir()
            os.chown(path, SERVICE, SERVICE)
        (base / "run").chmod(0o755)
        self.folder.chmod(0o700)
        self.socket = str(base / "run" / "socket")

    def command(self) -> list[str]:
        # everything is imported before the account is given up, which may not read where Python is; at once
        script = (
            "import os, sys\n"
            "getattr(sys, 'set_lazy_imports_filter', callable)(lambda *names: False)\n"
            "from importlib.metadata import version\n"
            "from bitfusion_pool.admin import cli, serve\n"
            "from bitfusion_pool.service import process\n"
            "import bitfusion_pool.inventory.refusals, bitfusion_pool.ledger.queue.queue_position\n"
            "import bitfusion_pool.inventory.filters, encodings.ascii, pwd, shutil, traceback\n"
            "from importlib import import_module\n"
            "import_module('tomllib' if sys.version_info >= (3, 11) else 'tomli')\n"
            f"os.setgroups([]); os.setgid({SERVICE}); os.setuid({SERVICE})\n"
            "sys.exit(cli.main(sys.argv[1:]))\n"
        )
        return [sys.executable, "-c", script, *super().command()[3:]]


@pytest.fixture
def shared(base: Path) -> Iterator[RunningService]:
    running = AccountService(base)
    yield running.start()
    running.end()


def as_user(uid: int, work: Callable[..., None], *values: object) -> None:
    """Do something as another user, in a process that ends with it; fails if it raises."""
    process = multiprocessing.get_context("fork").Process(target=_become, args=(uid, work, values))
    process.start()
    process.join(scaled(30))
    assert process.exitcode == 0


def _become(uid: int, work: Callable[..., None], values: tuple[object, ...]) -> None:
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    work(*values)


def ann_holds(path: str, uid: int = ANN) -> tuple[SocketClient, Granted]:
    """A client whose connection is that of another user, for this process to use."""
    client = SocketClient.of_user(path, uid)
    return client, client.acquire(GpuRequest(1, 0.5), "ann.ipynb")


def test_everybody_sees_who_holds_and_who_waits_by_name(shared: RunningService) -> None:
    ann, _ = ann_holds(shared.socket)
    with ann, connected(shared.socket) as root:
        snapshot = root.ask(Look(), PoolSnapshot)
        (entry,) = snapshot.entries
        assert (entry.holder.uid, entry.holder.user) == (ANN, f"user {ANN}")
        as_user(BOB, _bob_sees, shared.socket)


def _bob_sees(path: str) -> None:
    with connected(path) as bob:
        snapshot = bob.ask(Look(), PoolSnapshot)
        assert [entry.holder.label for entry in snapshot.entries] == ["ann.ipynb"]
        waiting = bob.wait(BOTH)
        assert f"user {ANN}: ann.ipynb (1 GPU × 50 %" in waiting.text


def test_a_fair_service_serves_ones_first_before_anothers_second(base: Path) -> None:
    service = AccountService(base, "--fair", "true").start()
    clients = [SocketClient.of_user(service.socket, uid) for uid in (ANN, ANN, ANN, BOB)]
    try:
        clients[0].acquire(BOTH)
        assert [client.wait(BOTH).position for client in clients[1:]] == [1, 2, 1]
        overtaken = clients[1].expect_position(2)
        assert overtaken.text.endswith("are served first, also if they came up to half an hour later")
        with connected(service.socket) as root:
            snapshot = root.ask(Look(), PoolSnapshot)
        assert [entry.holder.uid for entry in snapshot.entries] == [ANN, BOB, ANN, ANN]
        service.end(9)
        for client in clients[1:]:
            client.close()
        service.start()
        with connected(service.socket) as root:
            snapshot = root.ask(Look(), PoolSnapshot)
        assert [entry.holder.uid for entry in snapshot.entries] == [ANN, BOB, ANN, ANN]
    finally:
        for client in clients:
            client.close()
        service.end()


def test_nobody_ends_or_takes_what_is_anothers(shared: RunningService) -> None:
    ann, granted = ann_holds(shared.socket)
    with ann:
        reserved = ann.ask(Acquire(GpuRequest(1, 0.1), kind=RESERVED), Granted)
        as_user(BOB, _bob_tries, shared.socket, granted.entry.entry_id, granted.secret)
        as_user(BOB, _bob_tries, shared.socket, reserved.entry.entry_id, reserved.secret)
        assert len(connected_snapshot(shared.socket).entries) == 2


def connected_snapshot(path: str) -> PoolSnapshot:
    with connected(path) as client:
        return client.ask(Look(), PoolSnapshot)


def _bob_tries(path: str, lease: str, secret: str) -> None:
    with connected(path) as bob:
        # with the very secret that ann has
        for message in (Release, Resume, Renew):
            assert bob.ask(message(lease, secret), Refused).code == refusal_codes.LEASE_OVER
        refused = bob.ask(End(lease), Refused)
        assert refused.code == refusal_codes.NOT_YOURS
        assert refused.message == f"{lease} belongs to user {ANN}, and you are user {BOB}"
        assert refused.next_step == f"ask user {ANN}, or the administrator of this pool"
        # nor does it help to call somebody else's lease the one this program runs under
        waiting = bob.ask(Acquire(GpuRequest(2), inside=lease), Waiting)
        assert "the program that runs this command" not in waiting.text
        assert "this notebook" not in waiting.text


def test_each_ends_his_own_and_root_and_the_service_end_anything(shared: RunningService) -> None:
    ann, granted = ann_holds(shared.socket)
    with ann:
        as_user(ANN, _ends, shared.socket, granted.entry.entry_id)
        assert ann.expect(Refused).code == refusal_codes.ENDED
    for uid in (0, SERVICE):
        ann, granted = ann_holds(shared.socket)
        with ann:
            as_user(uid, _ends, shared.socket, granted.entry.entry_id)
            assert ann.expect(Refused).code == refusal_codes.ENDED


def _ends(path: str, lease: str) -> None:
    with connected(path) as client:
        assert client.ask(End(lease), Released) == Released(lease, True)


def test_a_waiting_request_of_another_cannot_be_ended(shared: RunningService) -> None:
    with connected(shared.socket) as root, connected(shared.socket) as waiter:
        root.acquire(BOTH)
        waiter.wait(BOTH)
        entry = connected_snapshot(shared.socket).entries[1]
        as_user(BOB, _cannot_end, shared.socket, entry.entry_id)
        root.close()
        waiter.expect(Granted)


def _cannot_end(path: str, entry_id: str) -> None:
    with connected(path) as bob:
        assert bob.ask(End(entry_id), Refused).code == refusal_codes.NOT_YOURS


ATTACKS_ON_FILES = (
    "ls $POOL",
    "cat $POOL/ledger.db",
    "cat $POOL/lease_key",
    "touch $POOL/locks/x",
    "ln -s /etc/passwd $POOL/x",
    "rm -f $SOCKET",
    "mv $SOCKET $SOCKET.old",
    "ln -sf /tmp/x $SOCKET",
    "touch $RUN/x",
    "chmod 777 $RUN",
    "chmod 777 $SOCKET",
    "mkdir $BASE/x",
    "mv $BASE/run $BASE/run.old",
    "kill $PID",
    "cat /proc/$PID/environ",
    "ls /proc/$PID/fd",
    "sqlite3 $POOL/ledger.db .dump",
)


@pytest.mark.parametrize("attack", ATTACKS_ON_FILES)
def test_another_user_can_do_nothing_to_the_files(shared: RunningService, attack: str) -> None:
    run = Path(shared.socket).parent
    environ = {
        "PATH": "/usr/bin:/bin",
        "POOL": str(shared.folder),
        "SOCKET": shared.socket,
        "RUN": str(run),
        "BASE": str(run.parent),
        "PID": str(shared.pid),
    }
    done = subprocess.run(
        ["/bin/sh", "-c", attack], user=BOB, group=BOB, extra_groups=[], env=environ, capture_output=True
    )
    assert done.returncode != 0
    assert stat.S_ISSOCK(os.stat(shared.socket).st_mode)
    assert connected_snapshot(shared.socket).entries == ()


def test_a_passed_lock_gives_no_way_to_its_file(shared: RunningService) -> None:
    as_user(BOB, _tries_the_lock, shared.socket)
    shared_entries = connected_snapshot(shared.socket).entries
    assert shared_entries == ()


def _tries_the_lock(path: str) -> None:
    with connected(path) as bob:
        bob.acquire()
        (fd,) = bob.fds
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY):
            with pytest.raises(PermissionError):
                os.open(f"/proc/self/fd/{fd}", flags)
        for attack in (
            lambda: os.write(fd, b"x"),
            lambda: os.ftruncate(fd, 1 << 30),
            lambda: os.fchmod(fd, 0o777),
            lambda: os.fchown(fd, BOB, BOB),
            lambda: os.posix_fallocate(fd, 0, 1 << 20),
            lambda: os.link(f"/proc/self/fd/{fd}", f"/tmp/bob-{os.getpid()}", follow_symlinks=True),
        ):
            with pytest.raises(OSError):  # noqa: PT011  # which one differs
                attack()


def test_descriptors_that_a_client_sends_are_not_kept(shared: RunningService) -> None:
    files = len(os.listdir(f"/proc/{shared.pid}/fd"))
    with connected(shared.socket) as client, open(os.devnull) as file:
        for _ in range(50):
            socket.send_fds(client.socket, [Look().format()], [file.fileno()] * 10)
            client.expect(PoolSnapshot)
        assert len(os.listdir(f"/proc/{shared.pid}/fd")) <= files + 2


def test_a_container_with_the_socket_is_refused(shared: RunningService) -> None:
    """Its root has uid 0 here, too."""
    script = (
        "import socket\n"
        f"s = socket.socket(socket.AF_UNIX); s.connect({shared.socket!r})\n"
        "print(s.recv(4096).decode())\n"
    )
    for unshare in (["--pid", "--fork"], ["--user", "--map-root-user"], ["--user"]):
        done = subprocess.run(
            ["unshare", *unshare, sys.executable, "-S", "-c", script], capture_output=True, text=True
        )
        assert '"code":"wrong_peer"' in done.stdout, (unshare, done.stderr)
        assert (
            "this socket is for users of this machine, and you come from a container or another namespace; "
            "containers use TLS and a token" in done.stdout
        )


def test_who_connects_and_ends_leaves_its_connection_to_nobody(shared: RunningService) -> None:
    """Or a process that gets its pid would be taken for it."""
    reader, writer = socket.socketpair()
    child = os.fork()
    if not child:
        os.kill(shared.pid, 19)  # SIGSTOP: it takes the connection later
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(shared.socket)
        socket.send_fds(writer, [b"x"], [connection.fileno()])
        os._exit(0)
    _, (fd,), _, _ = socket.recv_fds(reader, 1, 1)
    os.waitpid(child, 0)
    os.kill(shared.pid, 18)
    with reader, writer, socket.socket(fileno=fd) as connection:
        connection.settimeout(scaled(10))
        answer = connection.recv(4096)
    assert b'"code":"wrong_peer"' in answer
    assert b"the process that connected has ended, so nobody can tell whose this connection is" in answer


def test_the_services_own_leases_are_found_held_by_others_accounts(shared: RunningService) -> None:
    ann, granted = ann_holds(shared.socket)
    with ann:
        shared.end(9)
        shared.start()
        (entry,) = connected_snapshot(shared.socket).entries
        assert (entry.state, entry.entry_id) == (HELD, granted.entry.entry_id)
