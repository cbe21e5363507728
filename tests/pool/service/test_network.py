"""Clients over TLS: let in by a token, served with simulated devices, told apart by name."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.token_rules import TokenLimits
from bitfusion_pool.ledger.entries import HELD, REMOTE
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Acquire, Alive, Cancel, End, Look
from bitfusion_pool.messages.from_service import Granted, PoolSnapshot, Refused, Released, Waiting, Welcome
from tests.pool.service.tls_client import HOST, NetworkService, TlsClient, half, refusal

REAL = """
[[servers]]
name = "real"
address = "127.0.0.1"
port = 56001
devices = [{name = "NVIDIA A2", memory_mib = 15356, uuid = "GPU-0"}]
"""
SIMULATED = """
[[servers]]
name = "simulated"
address = "127.0.0.1"
port = 56002
devices = [{name = "Simulated A2", memory_mib = 15356, count = 1}]
"""
BOTH = Acquire(GpuRequest(2), label="far.ipynb")


@pytest.fixture
def network(base: Path) -> Iterator[NetworkService]:
    """A service at a port of 127.0.0.1, with two simulated GPUs."""
    running = NetworkService(base)
    running.start()
    yield running
    running.end()


def test_a_client_with_a_token_is_welcomed_and_told_the_times(network: NetworkService) -> None:
    with network.stranger() as client:
        welcome = client.say_hello(network.token("ada", lasts_s=3600), Welcome)
    assert (welcome.closed_s, welcome.silent_s, welcome.heartbeat_s) == (15, 120, 5)
    assert welcome.token_expires_at - welcome.token_created_at == 3600
    assert welcome.simulated
    assert len(welcome.client_id) == 36


def test_a_remote_lease_is_the_names_and_has_no_lock(network: NetworkService) -> None:
    token = network.token("ada")
    with network.remote(token) as client:
        granted = client.ask(half(), Granted)
        (entry,) = network.entries()
        assert entry == granted.entry
        assert (entry.state, entry.kind, entry.holder.user) == (HELD, REMOTE, "ada")
        assert (entry.holder.label, entry.holder.host, entry.holder.pid) == ("far.ipynb", "pod-1", 7)
        assert entry.holder.is_remote
        assert os.listdir(network.folder / "locks") == []
        assert client.ask(Alive(), Alive) == Alive()
        assert [one.entry_id for one in client.ask(Look(), PoolSnapshot).entries] == [entry.entry_id]
        client.release(granted)
    assert network.entries() == []
    assert not any(token in str(line) or granted.secret in str(line) for line in network.log)


def test_remote_and_local_clients_are_served_in_one_order(network: NetworkService) -> None:
    with network.client() as here, network.remote(network.token("ada")) as far, network.client() as last:
        first = here.acquire(GpuRequest(2))
        waiting = far.ask(BOTH, Waiting)
        assert (waiting.position, bool(waiting.entry), bool(waiting.secret)) == (1, True, True)
        second = last.wait(GpuRequest(2))
        assert second.position == 2
        assert "ada: far.ipynb" in second.text
        here.release(first)
        granted = far.expect(Granted)
        assert granted.entry.entry_id == waiting.entry
        far.release(granted)
        last.expect(Granted)


def test_a_fair_queue_knows_clients_by_the_names_of_their_tokens(base: Path) -> None:
    """Whoever has nothing goes before the second request of a name, wherever either is."""
    service = NetworkService(base, "--fair", "true")
    service.start()
    try:
        ada, bob = service.token("ada"), service.token("bob")
        with (
            service.remote(ada) as first,
            service.remote(ada) as second,
            service.remote(ada) as third,
            service.client() as here,
            service.remote(bob) as other,
        ):
            granted = first.ask(BOTH, Granted)
            assert second.ask(BOTH, Waiting).position == 1
            assert third.ask(BOTH, Waiting).position == 2
            assert here.wait(GpuRequest(2)).position == 1
            assert other.ask(BOTH, Waiting).position == 2
            told = second.expect_position(3)
            assert "you hold or wait for GPUs of this pool already, and others who have less" in told.text
            first.release(granted)
            here.release(here.expect(Granted))
            for client in (other, second, third):
                granted = client.expect(Granted)
                client.release(granted)
    finally:
        service.end()


def test_a_request_that_waits_can_be_cancelled(network: NetworkService) -> None:
    with network.client() as here, network.remote(network.token("ada")) as far:
        here.acquire(GpuRequest(2))
        waiting = far.ask(BOTH, Waiting)
        assert far.ask(Cancel(), Released).lease == waiting.entry
        assert len(network.entries()) == 1


@pytest.mark.parametrize(
    ("sent", "words", "cure"),
    [
        (
            "",
            "this pool is for clients with a token, and none was sent",
            "ask the administrator of this pool",
        ),
        ("hunter2", "this is not a pool token, or only part of one", "copy the whole token"),
        ("revoked", "the token was revoked at: 20", "ask the administrator of this pool for a new token"),
        ("expired", "Token expired at: 20", "ask the administrator of this pool for a new token"),
        ("other", "this pool does not know the token", "ask the administrator of this pool for a new token"),
    ],
)
def test_a_wrong_token_is_refused_in_words_and_the_connection_ends(
    network: NetworkService, sent: str, words: str, cure: str
) -> None:
    texts = {"revoked": network.token("ada"), "expired": network.token("bob", lasts_s=-1), "other": ""}
    network.revoke("ada")
    texts["other"] = network.token("eve")
    if sent == "other":
        (network.folder / "tokens.json").unlink()
    with network.stranger() as client:
        refused = client.say_hello(texts.get(sent, sent), Refused)
        assert refused.code == refusal_codes.WRONG_TOKEN
        assert refused.message.startswith(words)
        assert refused.next_step.startswith(cure)
        assert client.receive() is None


def test_damaged_tokens_let_nobody_in_and_tell_the_log_why(network: NetworkService) -> None:
    token = network.token("ada")
    (network.folder / "tokens.json").write_text("{")
    with network.stranger() as client:
        refused = client.say_hello(token, Refused)
        assert (refused.code, refused.message) == (
            refusal_codes.UNREADABLE,
            "the service cannot use its own files",
        )
        assert client.receive() is None


def test_two_names_and_a_user_of_the_machine_cannot_end_each_others_leases(network: NetworkService) -> None:
    ada, eve = network.token("ada"), network.token("root")
    with network.remote(ada) as mine, network.remote(eve) as other:
        granted = mine.ask(half(), Granted)
        refused = refusal(other, End(granted.entry.entry_id))
        assert refused.code == refusal_codes.NOT_YOURS
        assert refused.message == f"{granted.entry.entry_id} belongs to ada, and you are root"
        numbers = {granted.entry.holder.uid, other.ask(half(), Granted).entry.holder.uid}
        assert len(numbers) == 2
        assert max(numbers) < -1


def test_an_identity_outlives_the_service(network: NetworkService) -> None:
    ada, bob = network.token("ada"), network.token("bob")

    def number(token: str) -> int:
        with network.remote(token) as client:
            granted = client.ask(half(), Granted)
            client.release(granted)
            return granted.entry.holder.uid

    before = number(ada), number(bob)
    network.end()
    network.start()
    assert (number(bob), number(ada)) == before[::-1]


def test_a_pool_without_simulated_gpus_leases_none_over_the_network(base: Path) -> None:
    service = NetworkService(base)
    service.configure(REAL)
    service.start()
    try:
        with service.remote(service.token("ada")) as client:
            refused = refusal(client, half())
            assert refused.code == refusal_codes.NEVER
            assert refused.message == (
                "over the network this pool leases simulated GPUs only, and it has none: it forwards no CUDA"
            )
            assert refused.next_step == (
                "use its GPUs on the machine that has them; "
                "or ask its administrator for simulated ones (bitfusion-pool simulate)"
            )
    finally:
        service.end()


def test_real_gpus_beside_simulated_ones_are_not_leased_over_the_network(base: Path) -> None:
    service = NetworkService(base)
    service.configure(REAL + SIMULATED)
    service.start()
    try:
        with service.remote(service.token("ada")) as client:
            granted = client.ask(half(), Granted)
            assert granted.server.name == "simulated"
            assert all(device.simulated for device in granted.server.devices)
            refused = refusal(client, Acquire(GpuRequest(2)))
            assert "no server can satisfy the request: 2 GPUs" in refused.message
    finally:
        service.end()


@pytest.mark.parametrize(
    ("limits", "requests", "words"),
    [
        (
            TokenLimits(gpus=1),
            [1, 1],
            "the name of your token may have 1 GPUs, you have or wait for 1, and this",
        ),
        (
            TokenLimits(leases=1),
            [1, 1],
            "the name of your token may have 1 leases, waiting requests included, and",
        ),
        (
            TokenLimits(waiting=1),
            [2, 2, 2],
            "the name of your token may have 1 waiting requests, and you have 1",
        ),
    ],
)
def test_a_tokens_limits_are_the_names(
    network: NetworkService, limits: TokenLimits, requests: list[int], words: str
) -> None:
    token = network.token("ada", limits)
    clients = [network.remote(token) for _ in requests]
    try:
        for client, gpus in zip(clients, requests, strict=True):
            client.send(Acquire(GpuRequest(gpus)))
            answer = client.receive()
        assert isinstance(answer, Refused)
        assert answer.code == refusal_codes.OVER_LIMIT
        assert answer.message.startswith(words)
    finally:
        for client in clients:
            client.close()


def test_a_tokens_share_limits_every_request(network: NetworkService) -> None:
    with network.remote(network.token("ada", TokenLimits(share=0.5))) as client:
        refused = refusal(client, Acquire(GpuRequest(1)))
        assert refused.code == refusal_codes.OVER_LIMIT
        assert refused.message == (
            "your token allows 50 % of each GPU, which is 8080 MiB of GPU 0 of 127.0.0.1:56001, "
            "and this request is for 16160 MiB"
        )
        assert refused.next_step == "ask for less, such as -p 0.5"
        assert "8081 MiB" in refusal(client, Acquire(GpuRequest(1, memory_mib=8081))).message
        client.ask(Acquire(GpuRequest(1, memory_mib=8080)), Granted)
        client.ask(half(), Granted)


def test_a_service_without_a_certificate_says_how_to_make_one(base: Path) -> None:
    service = NetworkService(base)
    (service.folder / "certificates/server.pem").unlink()
    status, words = service.fails()
    assert status == 1
    assert "certificates/server.pem cannot be used: No such file or directory" in words
    assert "bitfusion-pool certificate create --host HOST" in words


def test_a_port_that_is_taken_is_told(network: NetworkService, base: Path) -> None:
    (base / "other").mkdir()
    other = NetworkService(base / "other")
    other.options = ("--listen", f"{HOST}:{network.port}")
    status, words = other.fails()
    assert status == 1
    assert f"cannot listen at {HOST}:{network.port}: Address already in use; end what uses this port" in words


def test_a_client_that_trusts_another_authority_makes_no_connection(
    network: NetworkService, base: Path
) -> None:
    (base / "other").mkdir()
    other = NetworkService(base / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        TlsClient(network.port, other.authority)
