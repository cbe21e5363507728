"""Leases over the network with a service that runs: cut, resumed, ended, revoked; a service started anew."""

from __future__ import annotations

import signal
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.certificate_files import create_certificates
from bitfusion_pool.ledger.entries import HELD, RESERVED, WAITING
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Alive, Cancel, End, Release, Renew, Resume
from bitfusion_pool.messages.from_service import (
    DIRECT,
    INDIRECT,
    Granted,
    Refused,
    Released,
    Renewed,
    Waiting,
    Welcome,
)
from tests.pool.network.cutting_proxy import CuttingProxy, Side
from tests.pool.service.tls_client import HOST, NetworkService, TlsClient, half, refusal
from tests.support.machine import scaled
from tests.support.waiting import wait_until

Start = Callable[..., NetworkService]
BOTH = Acquire(GpuRequest(2), label="far.ipynb")
NEVER = ("--closed-s", "3600", "--silent-s", "3600")
SOON = ("--closed-s", "0.2", "--heartbeat-s", "0.1", "--silent-s", "3600")


@pytest.fixture
def start(base: Path) -> Iterator[Start]:
    """Starts a service with these options."""
    running: list[NetworkService] = []

    def start(*options: str) -> NetworkService:
        running.append(NetworkService(base, *options))
        running[0].start()
        return running[0]

    yield start
    running[0].end()


def test_a_lease_outlives_its_connection_and_its_client_comes_back(start: Start) -> None:
    service = start(*NEVER)
    token = service.token("ada")
    first = service.remote(token)
    granted = first.ask(half(), Granted)
    first.cut()
    with service.remote(token) as second:
        assert second.come_back(granted, Granted) == granted
        assert second.ask(Alive(), Alive) == Alive()
        second.release(granted)
    assert service.entries() == []


def test_a_lease_whose_client_does_not_come_back_goes_to_the_next(start: Start) -> None:
    service = start(*SOON)
    token = service.token("ada")
    first = service.remote(token)
    granted = first.ask(BOTH, Granted)
    with service.client() as waiter:
        waiter.wait(GpuRequest(2))
        first.cut()
        waiter.expect(Granted)
    with service.remote(token) as late:
        refused = late.come_back(granted, Refused)
    assert refused.code == refusal_codes.LEASE_OVER
    assert refused.message == (
        f"there is no lease {granted.entry.entry_id} with this secret of yours: it has ended"
    )


BREAKS: dict[str, Callable[[TlsClient, CuttingProxy], None]] = {
    "reset by the client's machine": lambda client, network: client.reset(),
    "reset by the network": lambda client, network: network.reset(),
    "killed behind a proxy": lambda client, network: client.cut(),
    "ended by a proxy for the service alone": lambda client, network: network.end(told=Side.SERVICE),
}


@pytest.mark.parametrize("how", BREAKS)
def test_an_end_that_the_clients_own_machine_has_not_made_is_silence(start: Start, how: str) -> None:
    silent_s = scaled(2.0)
    service = start("--closed-s", "0.2", "--heartbeat-s", "0.1", "--silent-s", f"{silent_s:g}")
    with CuttingProxy(service.port, as_router="proxy" not in how) as network:
        client = TlsClient(network.port, service.authority)
        with client:
            welcome = client.say_hello(service.token("ada"), Welcome)
            assert welcome.route == (INDIRECT if "proxy" in how else DIRECT)
            asked_at = time.monotonic()  # the service counts from when it has heard that
            client.ask(half(), Granted)
            BREAKS[how](client, network)
            service.until_entries(0)
            assert time.monotonic() - asked_at >= silent_s

    def reasons() -> list[object]:
        return [line["reason"] for line in service.log if line["message"] == "remote lease lost"]

    wait_until(lambda: reasons() == ["silent"], reasons)


def test_behind_routers_the_end_of_a_client_that_is_killed_is_its_own(start: Start) -> None:
    service = start(*SOON)
    with CuttingProxy(service.port, as_router=True) as network:
        with TlsClient(network.port, service.authority) as client:
            assert client.say_hello(service.token("ada"), Welcome).route == DIRECT
            client.ask(half(), Granted)
        service.until_entries(0)


def test_a_client_that_does_not_tell_its_segment_size_is_taken_to_be_behind_a_proxy(start: Start) -> None:
    service = start(*NEVER)
    with service.stranger() as client:
        client.segment = 0
        assert client.say_hello(service.token("ada"), Welcome).route == INDIRECT


def test_the_log_says_how_the_client_of_a_lease_has_come(start: Start) -> None:
    service = start(*NEVER)
    with service.stranger() as far, service.client() as here:
        far.segment += 1
        far.say_hello(service.token("ada"), Welcome)
        far.release(far.ask(half(), Granted))
        with service.remote(service.token("bob")) as near:
            near.release(near.ask(half(), Granted))
        here.release(here.acquire())

    def routes() -> list[object]:
        return [line["route"] for line in service.log if line["message"] == "lease granted"]

    wait_until(lambda: routes() == ["indirect", "direct", "local"], routes)


@pytest.mark.parametrize("how", ["killed", "reset"])
def test_a_reservation_that_was_given_back_is_kept_while_its_user_may_believe_in_it(
    start: Start, how: str
) -> None:
    service = start(*SOON)
    token = service.token("ada")
    with service.remote(token) as client:
        reserved = client.ask(half(RESERVED), Granted)
        entry_id = reserved.entry.entry_id
        user = service.remote(token)
        user.come_back(reserved, Granted)
        assert client.ask(Release(entry_id, reserved.secret), Released) == Released(entry_id, True)
        if how == "killed":
            user.cut()
            service.until_entries(0)
        else:
            user.reset()
            time.sleep(0.5)  # more than twice `closed_s`
            assert len(service.entries()) == 1


def test_silence_on_an_open_connection_frees_a_lease_and_is_told(start: Start) -> None:
    service = start("--closed-s", "0.2", "--heartbeat-s", "0.1", "--silent-s", "0.4")
    with service.remote(service.token("ada")) as client:
        granted = client.ask(half(), Granted)
        refused = client.expect(Refused)
        assert refused.code == refusal_codes.ENDED
        assert refused.message == (
            f"your lease or request {granted.entry.entry_id} has ended: "
            "nothing was heard from you for 0.4 seconds"
        )
        service.until_entries(0)
        assert client.ask(Alive(), Alive) == Alive()


def test_a_place_in_the_queue_outlives_its_connection(start: Start) -> None:
    service = start(*NEVER)
    token = service.token("ada")
    with service.client() as holder, service.client() as behind:
        held = holder.acquire(GpuRequest(2))
        first = service.remote(token)
        waiting = first.ask(BOTH, Waiting)
        behind.wait(GpuRequest(2))
        first.cut()
        with service.remote(token) as second:
            again = second.come_back(waiting, Waiting)
            assert (again.position, again.length) == (1, 2)
            assert (again.entry, again.secret) == (waiting.entry, waiting.secret)
            holder.release(held)
            granted = second.expect(Granted)
            assert granted.entry.entry_id == waiting.entry
            second.release(granted)
            behind.expect(Granted)


def test_what_was_granted_while_the_connection_was_cut_is_there_for_who_comes_back(start: Start) -> None:
    service = start(*NEVER)
    token = service.token("ada")
    with service.client() as holder:
        held = holder.acquire(GpuRequest(2))
        first = service.remote(token)
        waiting = first.ask(BOTH, Waiting)
        reserving = service.remote(token)
        reserved = reserving.ask(half(RESERVED), Waiting)
        first.cut()
        reserving.cut()
        holder.release(held)
    with service.remote(token) as second:
        granted = second.come_back(waiting, Granted)
        assert (granted.entry.entry_id, granted.entry.state) == (waiting.entry, HELD)
        second.release(granted)
    with service.remote(token) as third:
        found = third.come_back(reserved, Granted)
        assert found.entry.expires_at is not None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_leases_and_places_outlive_the_service(start: Start, number: int) -> None:
    service = start(*NEVER)
    token = service.token("ada")
    clients = [service.remote(token) for _ in range(4)]
    try:
        leases = [client.ask(half(), Granted) for client in clients[:2]]
        waiting = clients[2].ask(BOTH, Waiting)
        reserved = clients[3].ask(Acquire(GpuRequest(2), kind=RESERVED), Waiting)
        service.end(number)
        if number == signal.SIGTERM:
            assert clients[0].expect(Refused).code == refusal_codes.SERVICE_ENDS
        service.start()
        again = [service.remote(token) for _ in range(4)]
        clients += again
        for client, lease in zip(again, leases, strict=False):
            assert client.come_back(lease, Granted) == lease
        assert again[2].come_back(waiting, Waiting).position == 1
        assert again[3].come_back(reserved, Waiting).position == 2
        for client, lease in zip(again, leases, strict=False):
            client.release(lease)
        again[2].release(again[2].expect(Granted))
        assert again[3].expect(Granted).entry.entry_id == reserved.entry
    finally:
        for client in clients:
            client.close()


def test_a_second_connection_replaces_the_first_which_is_told_and_closed(start: Start) -> None:
    service = start(*SOON)
    token = service.token("ada")
    with service.remote(token) as first, service.remote(token) as second:
        granted = first.ask(half(), Granted)
        second.come_back(granted, Granted)
        refused = first.expect(Refused)
        assert refused.code == refusal_codes.REPLACED
        assert refused.message == (
            f"another connection has come back to your lease or request {granted.entry.entry_id}"
        )
        assert first.receive() is None
        second.release(granted)


def test_a_word_that_comes_late_on_an_earlier_connection_takes_nothing_back(start: Start) -> None:
    """A keeper was killed that had dialed; its successor has the lease when the network lets that through."""
    service = start(*SOON)
    token = service.token("ada")
    with service.remote(token) as first:
        granted = first.ask(half(), Granted)
        with service.remote(token) as held_up, service.remote(token) as successor:
            successor.come_back(granted, Granted)
            assert held_up.come_back(granted, Refused).code == refusal_codes.REPLACED
            assert held_up.receive() is None
            held_up.cut()
            time.sleep(0.5)  # more than twice `closed_s`
            assert successor.ask(Alive(), Alive) == Alive()
            assert len(service.entries()) == 1
            successor.reset()
        with service.remote(token) as next_one:
            next_one.come_back(granted, Granted)


def test_a_secret_is_worth_nothing_without_its_lease_or_under_another_token(start: Start) -> None:
    service = start(*NEVER)
    with service.remote(service.token("ada")) as owner, service.remote(service.token("eve")) as other:
        granted = owner.ask(half(), Granted)
        entry_id, secret = granted.entry.entry_id, granted.secret
        over = f"there is no lease {entry_id} with this secret of yours: it has ended"
        for message in (Resume(entry_id, secret), Release(entry_id, secret), Renew(entry_id, secret)):
            assert refusal(other, message).message == over
        assert refusal(owner, Resume(entry_id, "0" * 64)).message == over
        assert owner.ask(Alive(), Alive) == Alive()
        owner.release(granted)
        assert refusal(owner, Resume(entry_id, secret)).message == over
        with service.client() as here:
            assert refusal(here, Resume(entry_id, secret)).message == over


def test_a_lease_that_an_administrator_ends_is_free_when_its_client_has_released_it(start: Start) -> None:
    service = start(*NEVER)
    with service.remote(service.token("ada")) as client, service.client() as admin:
        granted = client.ask(BOTH, Granted)
        entry_id = granted.entry.entry_id
        assert admin.ask(End(entry_id), Released) == Released(entry_id, True)
        refused = client.expect(Refused)
        assert (refused.code, refused.message) == (
            refusal_codes.ENDED,
            f"somebody ended your request or lease {entry_id}",
        )
        assert admin.wait(GpuRequest(2)).position == 1
        assert refusal(client, Resume(entry_id, granted.secret)).code == refusal_codes.LEASE_OVER
        client.release(granted)
        admin.expect(Granted)


def test_a_client_that_hangs_up_instead_of_releasing_what_was_ended_loses_it_after_closed_s(
    start: Start,
) -> None:
    service = start(*SOON)
    with service.client() as admin:
        with service.remote(service.token("ada")) as client:
            granted = client.ask(half(), Granted)
            admin.ask(End(granted.entry.entry_id), Released)
            assert client.expect(Refused).code == refusal_codes.ENDED
        service.until_entries(0)


def test_a_request_that_somebody_ends_while_its_client_is_away_is_over(start: Start) -> None:
    service = start(*NEVER)
    token = service.token("ada")
    with service.client() as admin:
        admin.acquire(GpuRequest(2))
        client = service.remote(token)
        waiting = client.ask(BOTH, Waiting)
        client.cut()
        assert admin.ask(End(waiting.entry), Released) == Released(waiting.entry)
    with service.remote(token) as client:
        assert client.come_back(waiting, Refused).code == refusal_codes.LEASE_OVER


def test_a_revoked_token_ends_open_connections_and_a_new_one_of_the_name_comes_back(start: Start) -> None:
    service = start(*NEVER)
    other = service.token("bob")
    with service.remote(service.token("ada")) as client, service.remote(other) as bob:
        granted = client.ask(half(), Granted)
        service.revoke("ada")
        refused = client.expect(Refused)
        assert refused.code == refusal_codes.WRONG_TOKEN
        assert refused.message.startswith("the token was revoked at: 20")
        assert client.receive() is None
        assert bob.ask(Alive(), Alive) == Alive()
    with service.remote(service.token("ada")) as again:
        assert again.come_back(granted, Granted) == granted
    assert not any(granted.secret in str(line) for line in service.log)


def test_the_gpus_of_a_revoked_client_are_free_soon_after_it_has_hung_up(start: Start) -> None:
    service = start(*SOON)
    with service.remote(service.token("ada")) as client:
        client.ask(half(), Granted)
        service.revoke("ada")
        assert client.expect(Refused).code == refusal_codes.WRONG_TOKEN
        assert client.receive() is None
    service.until_entries(0)


def test_a_token_that_ends_meanwhile_is_told(start: Start) -> None:
    service = start(*NEVER)
    with service.stranger() as client:
        client.say_hello(service.token("ada", lasts_s=scaled(3)), Welcome)
        assert client.expect(Refused).message.startswith("Token expired at: 20")


def test_tokens_that_cannot_be_read_end_no_open_connection(start: Start) -> None:
    service = start(*NEVER)
    with service.remote(service.token("ada")) as client:
        (service.folder / "tokens.json").write_text("{")
        wait_until(lambda: any(line["message"] == "tokens cannot be read" for line in service.log))
        assert client.ask(half(), Granted).entry.state == HELD


def test_a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on(start: Start) -> None:
    service = start()
    token = service.token("ada")

    def shown(client: TlsClient) -> bytes | None:
        assert isinstance(client.socket, ssl.SSLSocket)
        return client.socket.getpeercert(binary_form=True)

    with service.remote(token) as old:
        create_certificates(str(service.folder), [HOST], datetime.now(timezone.utc))

        def new_is_shown() -> bool:
            with service.stranger() as new:
                return shown(new) != shown(old)

        wait_until(new_is_shown)
        assert old.ask(Alive(), Alive) == Alive()
        (service.folder / "certificates/server.pem").write_text("nothing")
        wait_until(lambda: any(line["message"] == "certificate cannot be used" for line in service.log))
        with service.remote(token) as new:
            assert new.ask(Alive(), Alive) == Alive()


def test_a_reservation_is_used_over_the_network_and_lasts_until_its_last_user_says_so(start: Start) -> None:
    service = start(*NEVER)
    token = service.token("ada")
    with service.remote(token) as client:
        reserved = client.ask(half(RESERVED), Granted)
        entry_id, secret = reserved.entry.entry_id, reserved.secret
        assert reserved.entry.expires_at is not None
        with service.remote(token) as user:
            used = user.come_back(reserved, Granted)
            renewed = service.entries()[0].expires_at
            assert renewed is not None
            assert renewed > reserved.entry.expires_at
            assert used.secret == secret
            assert client.ask(Release(entry_id, secret), Released) == Released(entry_id, True)
            assert user.ask(Renew(entry_id, secret), Renewed) == Renewed(entry_id)
            assert len(service.entries()) == 1
            assert user.ask(Cancel(), Released) == Released("")
            service.until_entries(0)


def test_a_remote_request_cancelled_or_dropped_leaves_nothing(start: Start) -> None:
    service = start(*SOON)
    token = service.token("ada")
    with service.client() as holder:
        holder.acquire(GpuRequest(2))
        with service.remote(token) as client:
            waiting = client.ask(BOTH, Waiting)
            assert client.ask(Release(waiting.entry, waiting.secret), Released).lease == waiting.entry
            client.ask(half(RESERVED), Waiting)
            assert [entry.state for entry in service.entries()] == [HELD, WAITING]
        service.until_entries(1)
