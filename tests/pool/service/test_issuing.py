"""Issuers over the network: tokens below their name and within their bounds, and nothing else; attacks."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_pool.access.token_rules import DAY_S, IssuerBounds, TokenLimits
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import (
    Acquire,
    Alive,
    Cancel,
    End,
    IssueToken,
    ListTokens,
    Look,
    Release,
    Renew,
    Resume,
    RevokeToken,
)
from bitfusion_pool.messages.from_service import (
    Granted,
    Refused,
    TokenIssued,
    TokenList,
    TokensRevoked,
)
from bitfusion_pool.messages.message import Message
from tests.pool.service.tls_client import NetworkService, TlsClient, half, refusal
from tests.support.waiting import wait_until

BOUNDS = IssuerBounds(TokenLimits(gpus=1), names=3, longest_s=2 * DAY_S)


@pytest.fixture(scope="module")
def network() -> Iterator[NetworkService]:
    base = Path(tempfile.mkdtemp(prefix="bfs-", dir="/tmp"))  # a short path, as of `base`
    running = NetworkService(base)
    running.start()
    yield running
    running.end()
    shutil.rmtree(base)


@pytest.fixture
def issuer(network: NetworkService, request: pytest.FixtureRequest) -> Iterator[TlsClient]:
    """An issuer of the test's own name."""
    with network.remote(network.token(_name(request), may_issue=BOUNDS)) as client:
        yield client


def _name(request: pytest.FixtureRequest) -> str:
    return f"i{abs(hash(request.node.name)) % 10**9}"


def test_an_issued_token_is_let_in_with_the_limits_of_its_name(
    network: NetworkService, issuer: TlsClient, request: pytest.FixtureRequest
) -> None:
    issued = issuer.ask(IssueToken("team-a"), TokenIssued)
    assert issued.row.name == f"{_name(request)}/team-a"
    assert (issued.row.gpus, issued.row.share) == (1, 0)
    with network.remote(issued.token) as first, network.remote(issued.token) as second:
        granted = first.ask(half(), Granted)
        assert granted.entry.holder.user == issued.row.name
        refused = refusal(second, half())
        assert refused.code == refusal_codes.OVER_LIMIT
        first.release(granted)
    assert issuer.ask(Alive(), Alive) == Alive()
    told = ("token issued", issued.row.name, issued.row.token_id)
    words = ("message", "token_name", "token")
    wait_until(lambda: told in [tuple(map(line.get, words)) for line in network.log], lambda: network.log)
    assert not any(issued.token[7:20] in json.dumps(line) for line in network.log)


def test_a_lease_lives_through_a_renewal_and_belongs_to_the_new_token_too(
    network: NetworkService, issuer: TlsClient
) -> None:
    old = issuer.ask(IssueToken("team-a"), TokenIssued)
    with network.remote(old.token) as before:
        granted = before.ask(half(), Granted)
        new = issuer.ask(IssueToken("team-a", renew=True, keep=old.row.token_id), TokenIssued)
        assert before.ask(Alive(), Alive) == Alive()
        with network.remote(new.token) as after:
            assert refusal(after, half()).code == refusal_codes.OVER_LIMIT  # the limit is the name's
            again = after.come_back(granted, Granted)
            after.release(again)


def test_a_changed_limit_in_units_holds_for_every_token_and_open_connection_of_the_name(
    network: NetworkService,
) -> None:
    issuers = network.token("units", may_issue=IssuerBounds(TokenLimits()))
    with (
        network.remote(issuers) as issuer,
        network.remote((old := issuer.ask(IssueToken("team-a", units=100), TokenIssued)).token) as before,
        network.remote(old.token) as waiting,
    ):
        assert old.row.units == 100
        granted = before.ask(half(), Granted)
        new = issuer.ask(IssueToken("team-a", renew=True, keep=old.row.token_id, units=50), TokenIssued)
        with network.remote(new.token) as after:
            assert "may have 50 units" in refusal(after, half()).message
        # a connection from before has the new limit within a second
        wait_until(lambda: refused_units(waiting), "the new limit", 20)
        assert before.ask(Alive(), Alive) == Alive()  # what it holds goes on
        issuer.ask(IssueToken("team-a", renew=True, keep=new.row.token_id, units=0), TokenIssued)
        with network.remote(old.token) as third:
            told = refusal(third, half())
            assert told.message == (
                "the name of your token may have 0 units, 100 are one GPU, you have or wait for 50, "
                "and this request is for 50"
            )
            assert told.next_step == "ask the administrator who set this limit for units"
        before.release(granted)


def refused_units(client: TlsClient) -> bool:
    """Whether another half of a GPU is over the limit; it is given back at once if not."""
    client.send(half())
    answer = client.receive()
    if isinstance(answer, Granted):
        client.release(answer)
        return False
    assert isinstance(answer, Refused)
    assert "may have 50 units" in answer.message
    return True


def test_revoked_tokens_are_refused_and_no_longer_listed(
    network: NetworkService, issuer: TlsClient, request: pytest.FixtureRequest
) -> None:
    issued = issuer.ask(IssueToken("team-a"), TokenIssued)
    issuer.ask(IssueToken("team-a", renew=True), TokenIssued)
    names = [row.name for row in issuer.ask(ListTokens(), TokenList).tokens]
    assert names == [f"{_name(request)}/team-a"] * 2
    revoked = issuer.ask(RevokeToken("team-a"), TokensRevoked)
    assert revoked == TokensRevoked(f"{_name(request)}/team-a", 2)
    assert issuer.ask(ListTokens(), TokenList) == TokenList((), False)
    with network.stranger() as client:
        assert "was revoked" in client.say_hello(issued.token, Refused).message
    assert issuer.ask(RevokeToken("team-a"), TokensRevoked).count == 0


@pytest.mark.parametrize(
    "message",
    [
        Look(),
        Acquire(GpuRequest()),
        Acquire(GpuRequest(), kind="reserved"),
        Cancel(),
        Release("a", "b"),
        Resume("a", "b"),
        Renew("a", "b"),
        End("a"),
    ],
    ids=lambda message: message.TYPE,
)
def test_an_issuer_may_do_nothing_else(issuer: TlsClient, message: Message) -> None:
    refused = refusal(issuer, message)
    assert refused.code == refusal_codes.NOT_ALLOWED
    assert refused.message.endswith("issues tokens, and may do nothing else")
    assert refused.next_step == "use a token that it has issued"


@pytest.mark.parametrize(
    "message", [IssueToken("x"), RevokeToken("x"), ListTokens()], ids=lambda one: one.TYPE
)
def test_nobody_else_issues(network: NetworkService, issuer: TlsClient, message: Message) -> None:
    issued = issuer.ask(IssueToken("team-a", renew=True), TokenIssued)
    for token in (network.token("plain", TokenLimits()), issued.token):
        with network.remote(token) as client:
            refused = refusal(client, message)
            assert refused.code == refusal_codes.NOT_ALLOWED
            assert refused.message.endswith("issues no tokens")
    network.revoke("plain")
    with network.client() as here:
        here.send(message)
        assert here.expect(Refused).message == "tokens are issued to an issuer over the network"
    with network.stranger() as client:
        assert refusal(client, message).message == "the first message of a client is hello"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (IssueToken("a", gpus=2), "this issuer gives at most gpus 1, and 2 were asked for"),
        (IssueToken("a", gpus=-1), "a limit is above 0, and gpus is -1"),
        (IssueToken("a", units=-2), "a limit is at least 0, and units is -2"),
        (IssueToken("a", life_s=1e15), "this issuer's tokens last at most 2 days"),
        (IssueToken("../ada"), "must be at most 63 letters, digits and . _ @ -"),
        (IssueToken("other/ada"), "must be at most 63 letters, digits and . _ @ -"),
        (RevokeToken("other/ada"), "must be at most 63 letters, digits and . _ @ -"),
    ],
    ids=["gpus", "negative", "units", "life", "up", "foreign", "revoke"],
)
def test_what_is_beyond_its_bounds_is_refused_and_it_stays_connected(
    issuer: TlsClient, message: Message, words: str
) -> None:
    refused = refusal(issuer, message)
    assert refused.code == refusal_codes.NOT_ISSUED
    assert words in refused.message
    assert issuer.ask(Alive(), Alive) == Alive()


def test_an_issuer_that_was_revoked_or_has_ended_issues_nothing(
    network: NetworkService, issuer: TlsClient, request: pytest.FixtureRequest
) -> None:
    network.revoke(_name(request))
    assert "was revoked" in refusal(issuer, IssueToken("a")).message
    late = network.token("late", lasts_s=-1, may_issue=BOUNDS)
    with network.stranger() as client:
        assert client.say_hello(late, Refused).message.startswith("Token expired at: ")


def test_an_issuer_that_asks_too_often_is_cut_off_and_others_are_served(network: NetworkService) -> None:
    token = network.token("flood", may_issue=BOUNDS)
    with network.remote(token) as client:
        for _ in range(1000):
            client.send(ListTokens())
            answer = client.receive()
            if isinstance(answer, Refused):
                break
        assert isinstance(answer, Refused)
        assert answer.code == refusal_codes.TOO_MANY
        assert answer.message == "an issuer may ask 5 times a second, and flood asks more often"
    with network.remote(network.token("other", may_issue=BOUNDS)) as other:
        other.ask(ListTokens(), TokenList)


def test_a_connection_asks_for_one_thing_at_a_time(network: NetworkService) -> None:
    """What is under way is held up by a lock of the file, so that the second message meets it."""
    with network.remote(network.token("hasty", may_issue=BOUNDS)) as client, _held(network.folder):
        client.socket.sendall(IssueToken("a").format() + IssueToken("b").format())
        assert client.expect(Refused).message == "this connection asks for a token already"


def test_a_file_that_an_administrator_holds_keeps_nobody_else_waiting(network: NetworkService) -> None:
    token = network.token("ada")
    with network.remote(network.token("patient", may_issue=BOUNDS)) as client:
        with _held(network.folder):
            client.send(IssueToken("a"))
            with network.remote(token) as ada:
                ada.release(ada.ask(half(), Granted))
            refused = client.expect(Refused)
        assert refused.message == "an administrator's command is changing the tokens of this pool"
        client.ask(IssueToken("a"), TokenIssued)


def test_tokens_that_are_issued_at_once_are_all_there(network: NetworkService) -> None:
    token = network.token("crowd", may_issue=IssuerBounds(TokenLimits(gpus=1), names=30))
    clients = [network.remote(token) for _ in range(20)]
    try:
        for number, client in enumerate(clients):
            client.send(IssueToken(f"n{number}"))
        names = {client.expect(TokenIssued).row.name for client in clients}
        assert names == {f"crowd/n{number}" for number in range(20)}
        listed = clients[0].ask(ListTokens(), TokenList)
        assert {row.name for row in listed.tokens} == names
        tail = clients[1].ask(ListTokens(listed.tokens[-2].token_id), TokenList)
        assert tail.tokens == listed.tokens[-1:]
    finally:
        for client in clients:
            client.close()


def test_the_service_ends_while_an_issuer_waits(base: Path) -> None:
    running = NetworkService(base)
    running.start()
    try:
        with running.remote(running.token("cluster", may_issue=BOUNDS)) as client, _held(running.folder):
            client.send(IssueToken("a"))
            client.send(Alive())
            client.expect(Alive)
            assert running.end() == 0
    finally:
        running.end()


class _held:  # noqa: N801  # reads as a phrase
    """The lock of the tokens' file, as an administrator's command holds it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "tokens.lock"

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def test_metrics_count_what_issuers_do() -> None:
    from prometheus_client import CollectorRegistry

    from bitfusion_pool.service.monitoring.metrics import Metrics

    registry = CollectorRegistry()
    for metrics in (Metrics(), Metrics(registry)):
        metrics.tokens.labels("issued").inc()
        metrics.tokens.labels("revoked").inc(2)
    for action, count in (("issued", 1), ("revoked", 2)):
        assert registry.get_sample_value("bitfusion_pool_tokens_total", {"action": action}) == count
