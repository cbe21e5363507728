"""Leases over the socket: taken, waited for in order, given back, ended, found again after a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.ledger.entries import HELD, RESERVED, WAITING
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import (
    Acquire,
    Alive,
    Cancel,
    End,
    Hello,
    Look,
    Release,
    Renew,
    Resume,
)
from bitfusion_pool.messages.from_service import (
    Granted,
    PoolSnapshot,
    Refused,
    Released,
    Renewed,
)
from tests.pool.service.running_service import RunningService
from tests.pool.service.socket_client import SocketClient

BOTH = GpuRequest(2)


def test_a_client_is_welcomed_with_the_pool_as_it_is(service: RunningService) -> None:
    with SocketClient(service.socket) as client:
        welcome = client.hello()
    assert welcome.pool == f"the pool of {os.uname().nodename}"
    assert welcome.simulated
    assert [server.key for server in welcome.servers] == ["127.0.0.1:56001"]
    assert "waiting_text=places" in welcome.emulation
    assert len(welcome.client_id) == 36


def test_a_lease_is_granted_with_its_lock_and_released(service: RunningService) -> None:
    with service.client() as client:
        granted = client.acquire(GpuRequest(2, 0.5), "a;b.ipynb")
        assert len(client.fds) == 1
        (entry,) = service.entries()
        assert (entry.state, entry.holder.label, entry.holder.pid) == (HELD, "a,b.ipynb", os.getpid())
        assert entry == granted.entry
        assert [share.memory_mib for share in granted.entry.shares] == [8080, 8080]
        assert granted.server.key == entry.shares[0].server
        client.release(granted)
        assert service.entries() == []
        assert list((service.folder / "locks").iterdir()) == []
        client.acquire()


def test_the_lock_can_be_neither_written_nor_opened_anew(service: RunningService) -> None:
    with service.client() as client:
        client.acquire()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.write(client.fds[0], b"x")


def test_a_lease_ends_with_the_last_process_that_has_its_lock(service: RunningService) -> None:
    client = service.client()
    granted = client.acquire(BOTH)
    os.set_inheritable(client.fds[0], True)
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    client.close()
    with service.client() as other:
        waiting = other.wait(BOTH)
        assert (waiting.position, waiting.length) == (1, 1)
        time.sleep(0.3)
        assert [entry.entry_id for entry in service.entries()][:1] == [granted.entry.entry_id]
        program.communicate()
        other.expect(Granted)


def test_a_release_while_a_program_has_the_lock_is_told_and_waits_for_it(service: RunningService) -> None:
    with service.client() as client:
        granted = client.acquire()
        entry_id = granted.entry.entry_id
        assert client.ask(Release(entry_id, granted.secret), Released) == Released(entry_id, True)
        assert len(service.entries()) == 1
        client.drop_locks()
        service.until_entries(0)


def test_waiting_clients_are_served_in_the_order_they_came_and_told_their_position(
    service: RunningService,
) -> None:
    clients = [service.client() for _ in range(6)]
    try:
        clients[0].acquire(BOTH, "first.ipynb")
        for number, client in enumerate(clients[1:], 1):
            waiting = client.wait(BOTH, f"{number}.ipynb")
            assert (waiting.position, waiting.length) == (number, number)
            assert "first.ipynb" in waiting.text
        for number, client in enumerate(clients[:-1]):
            client.close()
            clients[number + 1].expect(Granted)
            left = len(clients) - 2 - number
            if left:
                clients[-1].expect_position(left)
    finally:
        for client in clients:
            client.close()


def test_a_small_request_does_not_overtake_a_large_one(service: RunningService) -> None:
    with service.client() as holder, service.client() as large, service.client() as small:
        holder.acquire(GpuRequest(1))
        large.wait(BOTH)
        waiting = small.wait(GpuRequest(1))
        assert waiting.position == 2
        assert "there is room for 1 GPU, but those before you are served first" in waiting.text
        holder.close()
        large.expect(Granted)


def test_cancelling_or_leaving_frees_the_place(service: RunningService) -> None:
    with service.client() as holder, service.client() as second, service.client() as third:
        holder.acquire(BOTH)
        second.wait(BOTH)
        third.wait(BOTH)
        released = second.ask(Cancel(), Released)
        assert released.lease
        assert [entry.state for entry in service.entries()] == [HELD, WAITING]
        assert second.ask(Cancel(), Released) == Released("")
        third.close()
        service.until_entries(1)


def test_a_request_that_may_not_wait_or_never_fits_is_refused_and_the_connection_goes_on(
    service: RunningService,
) -> None:
    with service.client() as holder, service.client() as client:
        holder.acquire(BOTH)
        refused = client.ask(Acquire(GpuRequest(), wait=False), Refused)
        assert refused.code == refusal_codes.NOT_ENOUGH_FREE
        assert refused.message.startswith("not enough GPUs available: 1 GPUs with 16160 MiB of memory each")
        refused = client.ask(Acquire(GpuRequest(3)), Refused)
        assert refused.code == refusal_codes.NEVER
        assert refused.message.startswith("no server can satisfy the request: 3 GPUs with 16160 MiB")
        refused = client.ask(Acquire(GpuRequest(), kind="remote"), Refused)
        assert refused.message == 'invalid value "remote" for kind: must be process or reserved'
        client.socket.sendall(b'{"type": "acquire", "request": {"gpus": 0}}\n')
        refused = client.expect(Refused)
        assert refused.code == refusal_codes.INVALID_REQUEST
        assert refused.message.startswith('invalid value "0" for gpus: ')
        assert client.ask(Alive(), Alive) == Alive()


def test_a_snapshot_shows_who_holds_and_who_waits(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter, service.client() as looker:
        holder.acquire(BOTH, "a.ipynb")
        waiter.wait(BOTH, "b.ipynb")
        snapshot = looker.ask(Look(), PoolSnapshot)
        assert [(entry.state, entry.holder.label) for entry in snapshot.entries] == [
            (HELD, "a.ipynb"),
            (WAITING, "b.ipynb"),
        ]
        assert [share.memory_mib for share in snapshot.free] == [0, 0]
        waiter.ask(Cancel(), Released)
        snapshot = looker.ask(Look(), PoolSnapshot)
        assert len(snapshot.entries) == 1


def test_a_reservation_lives_by_its_time_and_is_used_through_a_shared_lock(service: RunningService) -> None:
    with service.client() as client:
        granted = client.ask(Acquire(GpuRequest(), kind=RESERVED), Granted)
        assert client.fds == []
        entry_id, secret = granted.entry.entry_id, granted.secret
        assert granted.entry.expires_at is not None
    with service.client() as first, service.client() as second:
        first.ask(Resume(entry_id, secret), Granted)
        second.ask(Resume(entry_id, secret), Granted)
        assert (len(first.fds), len(second.fds)) == (1, 1)
        assert first.ask(Renew(entry_id, secret), Renewed) == Renewed(entry_id)
        assert second.ask(Release(entry_id, secret), Released) == Released(entry_id, True)
        # who uses it may go on, but nobody lengthens what was given back
        assert first.ask(Renew(entry_id, secret), Renewed) == Renewed(entry_id)
        assert len(service.entries()) == 1
        first.drop_locks()
        second.drop_locks()
        service.until_entries(0)
        assert second.ask(Resume(entry_id, secret), Refused).code == refusal_codes.LEASE_OVER


def test_a_wrong_secret_ends_nothing(service: RunningService) -> None:
    with service.client() as client:
        granted = client.acquire()
        other = client.acquire()
        for secret in ("", "x", other.secret, granted.secret.upper(), "é"):
            for message in (Release, Resume, Renew):
                refused = client.ask(message(granted.entry.entry_id, secret), Refused)
                assert refused.code == refusal_codes.LEASE_OVER
                assert refused.message == (
                    f"there is no lease {granted.entry.entry_id} with this secret of yours: it has ended"
                )
        assert len(service.entries()) == 2


def test_somebody_who_is_ended_while_waiting_hears_it(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter, service.client() as other:
        holder.acquire(BOTH)
        waiter.wait(BOTH)
        entry = service.entries()[1]
        assert other.ask(End(entry.entry_id), Released) == Released(entry.entry_id)
        refused = waiter.expect(Refused)
        assert refused.code == refusal_codes.ENDED
        assert refused.message == f"somebody ended your request or lease {entry.entry_id}"
        refused = other.ask(End("nothing"), Refused)
        assert refused.message == "there is no lease or request nothing"


def test_a_lease_that_is_ended_stays_until_nobody_uses_it_and_its_holder_hears_it(
    service: RunningService,
) -> None:
    with service.client() as holder, service.client() as other:
        granted = holder.acquire()
        entry_id = granted.entry.entry_id
        assert other.ask(End(entry_id), Released) == Released(entry_id, True)
        assert holder.expect(Refused).code == refusal_codes.ENDED
        assert len(service.entries()) == 1
        holder.drop_locks()
        service.until_entries(0)


def test_what_an_administrator_ends_in_the_ledger_is_told(service: RunningService) -> None:
    with service.client() as holder, service.client() as waiter:
        holder.acquire(BOTH)
        waiter.wait(BOTH)
        waiting = service.entries()[1].entry_id
        environ = {**os.environ, "BITFUSION_POOL_DIR": str(service.folder)}
        words = [sys.executable, "-m", "bitfusion_pool.admin.cli", "reap", "--force", waiting]
        subprocess.run(words, env=environ, check=True, capture_output=True)
        assert waiter.expect(Refused).code == refusal_codes.ENDED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_leases_outlive_the_service(service: RunningService, number: int) -> None:
    clients = [service.client() for _ in range(4)]
    try:
        leases = [client.acquire(GpuRequest(1, 0.5)) for client in clients]
        waiter = service.client()
        clients.append(waiter)
        place = waiter.wait(BOTH)
        service.end(number)
        if number == signal.SIGTERM:
            refused = waiter.expect(Refused)
            assert refused.code == refusal_codes.SERVICE_ENDS
            assert refused.message.endswith("what you hold stays yours")
        service.start()
        with service.client() as again:
            again.ask(End(place.entry), Released)
            assert [entry.entry_id for entry in service.entries()] == [
                granted.entry.entry_id for granted in leases
            ]
            lease = leases[0]
            resumed = again.ask(Resume(lease.entry.entry_id, lease.secret), Granted)
            assert resumed.entry == lease.entry
            assert resumed.secret == lease.secret
        clients[1].close()
        service.until_entries(3)
        for client in clients:
            client.close()
        service.until_entries(0)
    finally:
        for client in clients:
            client.close()


def test_another_version_is_refused_with_both_numbers(service: RunningService) -> None:
    with SocketClient(service.socket) as client:
        refused = client.ask(Hello(7), Refused)
        assert refused.code == refusal_codes.PROTOCOL
        assert refused.message == (
            "the service of this pool speaks version 1 of its messages, your bitfusion command version 7"
        )
        assert refused.next_step == "install the version of kubeflow-bitfusion that the service has"
        assert client.receive() is None
