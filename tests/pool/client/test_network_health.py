"""`bitfusion health` and the doctor with a service on the network: every step of reaching it is looked at."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bitfusion_client.command.client_reports import parse_health
from bitfusion_client.version import VERSION
from bitfusion_kernel.install.check_client import check_pool
from bitfusion_kernel.install.finding import FAIL, PASS
from bitfusion_pool.access.addresses import Address
from bitfusion_pool.messages import refusal_codes
from bitfusion_pool.messages.from_client import Look
from bitfusion_pool.messages.from_service import INDIRECT, PoolSnapshot, Refused
from bitfusion_pool.messages.message import Message
from tests.pool.client.fake_network_service import HOST, FakeNetworkService, welcome
from tests.pool.client.fake_service import SERVER
from tests.pool.client.network_user import home_of, network_user
from tests.pool.pool_client import COMMAND, PoolClient
from tests.support.certificates import certified
from tests.support.machine import scaled
from tests.support.ports import free_port, return_port

DAY_S = 86400


@pytest.fixture
def service(tmp_path: Path) -> Iterator[FakeNetworkService]:
    running = FakeNetworkService(tmp_path / "service", welcome(60.0, 480.0, 0.3, time.time() + 100 * DAY_S))
    shown = PoolSnapshot(1.0, 1.0, (SERVER,), (), 0, ())

    def answer(message: Message) -> Message | None:
        return shown if isinstance(message, Look) else running.grant(message)

    running.answer = answer
    signed = certified("service", [HOST], signed_by=running.authority, lasts=timedelta(days=90))
    running.start(signed)
    yield running
    running.stop()


@pytest.fixture
def user(client: PoolClient, service: FakeNetworkService) -> PoolClient:
    service.write_files(home_of(client))
    return network_user(client)


def report_of(user: PoolClient) -> list[str]:
    """The lines about the service, without their figures."""
    out = user.do("health").stdout
    first = out.split("\n\n\n")[0]
    return re.sub(r"\d+\.\d+ ms", "N ms", re.sub(r"\d{4}-\d\d-\d\d", "DATE", first)).splitlines()


def test_a_service_that_is_well(user: PoolClient, service: FakeNetworkService) -> None:
    done = user.do("health")
    assert done.returncode == 0, done.stdout
    lines = report_of(user)
    assert lines[:9] == [
        f"Health report for server: {service.place}",
        "=====",
        "",
        "System Resources checks:",
        "=====",
        f"[PASS    ] Check pool server name: {HOST} is {HOST}",
        f"[PASS    ] Check pool server port: {service.port} answered in N ms",
        f"[PASS    ] Check pool certificate: for {HOST}, TLSv1.3, its certificate ends on DATE",
        "[PASS    ] Check pool token: accepted, it ends on DATE",
    ]
    assert lines[9:12] == [
        "[PASS    ] Check pool messages: the pool of this test answered in N ms, version 1",
        f"[PASS    ] Check pool software: kubeflow-bitfusion {VERSION}",
        "[PASS    ] Check pool route: direct; GPUs of a client that was killed are free after 60 s",
    ]
    for section in parse_health(done.stdout).sections:
        counted = {tag: sum(check.tag == tag for check in section.checks) for tag, _ in section.totals}
        assert dict(section.totals) == counted
    assert f"Check pool in use: the service at {service.place}; {home_of(user)}/.bitfusion/" in done.stdout
    assert not (home_of(user) / ".local").exists()  # no pool of one's own was made for it


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("", f"not told, so a version before {VERSION}; this command is of {VERSION}"),
        ("9.9", f"kubeflow-bitfusion 9.9; this command is of {VERSION}"),
        ("9" * 60 + "\x1b[2J", f"kubeflow-bitfusion {'9' * 39}…; this command is of {VERSION}"),
    ],
)
def test_a_service_of_another_version_serves_and_is_told(
    user: PoolClient, service: FakeNetworkService, told: str, shown: str
) -> None:
    service.welcome = welcome(60.0, 480.0, 0.3, software=told)
    assert f"[PASS    ] Check pool software: {shown}" in report_of(user)
    assert user.do("run", "-n", "1", "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (INDIRECT, "through a proxy or load balancer; GPUs of a client that was killed are free after 480 s"),
        ("", f"not told, so a version before {VERSION}"),
    ],
)
def test_the_way_to_the_service_is_told(
    user: PoolClient, service: FakeNetworkService, told: str, shown: str
) -> None:
    service.welcome = welcome(60.0, 480.0, 0.3, route=told)
    assert f"[PASS    ] Check pool route: {shown}" in report_of(user)


def test_what_ends_soon_is_marginal(user: PoolClient, service: FakeNetworkService) -> None:
    service.stop()
    service.welcome = welcome(60.0, 480.0, 0.3, time.time() + DAY_S)
    service.start()  # its certificate lasts a day
    lines = report_of(user)
    assert lines[7] == (
        f"[MARGINAL] Check pool certificate: for {HOST}, TLSv1.3, its certificate ends on DATE, renew it"
    )
    assert lines[8] == "[MARGINAL] Check pool token: accepted, it ends on DATE, renew it"


@pytest.mark.parametrize(("left", "overdue"), [(0.3, False), (0.2, True)])
def test_a_token_that_its_cluster_should_have_renewed_is_told_as_such(
    user: PoolClient, service: FakeNetworkService, left: float, overdue: bool
) -> None:
    now = time.time()
    service.welcome = welcome(
        *(60.0, 480.0, 0.3),
        token_expires_at=now + left * 9 * DAY_S,
        token_created_at=now - (1 - left) * 9 * DAY_S,
    )
    more = ": three quarters of its lifetime have passed" if overdue else ""
    expected = f"[MARGINAL] Check pool token: accepted, it ends on DATE, renew it{more}"
    assert expected in report_of(user)


def test_where_nobody_listens_the_rest_is_skipped(user: PoolClient, service: FakeNetworkService) -> None:
    port = free_port()
    service.write_files(home_of(user), Address(HOST, port))
    try:
        done = user.do("health")
    finally:
        return_port(port)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[6] == (
        f"[FATAL   ] Check pool server port: dial tcp {HOST}:{port}: connect: connection refused"
    )
    assert lines[7] == "[SKIPPED ] Check pool certificate: the check before failed"
    assert done.stderr.splitlines()[-1].startswith("Error: none of the servers responded correctly")


@pytest.mark.parametrize("wrong", ["certificate", "token"])
def test_a_certificate_or_token_that_has_ended(
    user: PoolClient, service: FakeNetworkService, wrong: str
) -> None:
    if wrong == "certificate":
        service.stop()
        starts = datetime.now(timezone.utc) - timedelta(days=9)
        service.start(certified("service", [HOST], signed_by=service.authority, starts=starts))
        expected = f"x509: the certificate of {HOST} has ended; its administrator must renew it"
    else:
        said = "Token expired at: 2026-01-31T00:00:00Z"
        service.refusal = Refused(refusal_codes.WRONG_TOKEN, said, "ask for a new token")
        expected = "Token expired at: DATET00:00:00Z"
    assert f"[FATAL   ] Check pool {wrong}: {expected}" in report_of(user)


def test_the_doctor_says_what_is_wrong_with_which_server(
    user: PoolClient, service: FakeNetworkService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BITFUSION_POOL_DIR", "BITFUSION_POOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home_of(user)))
    found = {finding.subject: finding for finding in check_pool(COMMAND)}
    assert found["pool certificate"].verdict == PASS
    assert found["pool software"].found == f"kubeflow-bitfusion {VERSION}"
    service.silent = True
    # for each of its answers, and the doctor waits for all of them 30 s at most
    service.write_files(home_of(user), timeout=f"{min(5.0, scaled(1)):g}s")
    wrong = {finding.subject: finding for finding in check_pool(COMMAND)}["pool token"]
    assert (wrong.verdict, wrong.found) == (FAIL, f"{service.place}: context deadline exceeded")
