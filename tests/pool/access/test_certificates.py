"""A service's certificates, in real handshakes: made, renewed without losing trust, refused in words."""

from __future__ import annotations

import os
import re
import socket
import ssl
import stat
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from bitfusion_client.errors import ClientFailed, PoolUnreadable
from bitfusion_pool.access.certificate_files import Certificates, create_certificates, renew_certificates
from bitfusion_pool.access.certificates import AUTHORITY_LIFETIME, SERVER_LIFETIME
from bitfusion_pool.access.tls import client_context, handshake_problem, server_context
from tests.support.certificates import certified
from tests.support.machine import scaled

NOW = datetime.now(timezone.utc).replace(microsecond=0)
HOSTS = ("pool.example.org", "127.0.0.1", "::1")


class Pool:
    """One folder with certificates, and handshakes with what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = folder / "certificates" / "server.pem"
        self.authority = folder / "certificates" / "authority.pem"

    def create(self, *hosts: str, now: datetime = NOW) -> Certificates:
        return create_certificates(str(self.folder), hosts or HOSTS, now)

    def renew(self, now: datetime, force: bool = False) -> Certificates | None:
        return renew_certificates(str(self.folder), now, force)

    def handshake(self, host: str, authority: str, most: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> str:
        """The version that both agreed on; raises what the client's side raises."""
        client = client_context(Path(authority).read_text())
        return shake(server_context(str(self.server)), client, host, most)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str, most: ssl.TLSVersion) -> str:
    ours, theirs = socket.socketpair()
    ours.settimeout(scaled(10))
    theirs.settimeout(scaled(10))
    client.maximum_version = most

    def serve() -> None:
        with ours:
            try:
                with server.wrap_socket(ours, server_side=True) as connection:
                    connection.recv(1)
            except OSError:
                pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with theirs, client.wrap_socket(theirs, server_hostname=host) as connection:
            return str(connection.version())
    finally:
        theirs.close()
        thread.join()


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(tmp_path)


def problem(pool: Pool, host: str, authority: str) -> str:
    with pytest.raises(ssl.SSLError) as error:
        pool.handshake(host, authority)
    return handshake_problem(error.value, host)


@pytest.mark.parametrize("host", HOSTS)
def test_a_client_knows_the_service_by_each_of_its_hosts(pool: Pool, host: str) -> None:
    made = pool.create()
    assert made.hosts == HOSTS
    assert (made.ends, made.authority_ends) == (NOW + SERVER_LIFETIME, NOW + AUTHORITY_LIFETIME)
    assert pool.handshake(host, made.for_clients) == "TLSv1.3"
    assert pool.handshake(host, made.for_clients, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1")
@pytest.mark.parametrize("side", ["client", "server"])
def test_nobody_speaks_tls_1_1(pool: Pool, side: str) -> None:
    made = pool.create()
    server, client = server_context(str(pool.server)), client_context(Path(made.for_clients).read_text())
    if side == "client":
        server.minimum_version = ssl.TLSVersion.TLSv1
        server.maximum_version = ssl.TLSVersion.TLSv1_1
        most = ssl.TLSVersion.TLSv1_3
    else:
        client.minimum_version = ssl.TLSVersion.TLSv1
        most = ssl.TLSVersion.TLSv1_1
    for context in (server, client):
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(OSError, match=r"(?i)version|closed|EOF|reset"):
        shake(server, client, "127.0.0.1", most)


def test_another_host_is_refused_in_words(pool: Pool) -> None:
    made = pool.create("pool.example.org")
    for host in ("other.example.org", "127.0.0.1"):
        assert problem(pool, host, made.for_clients) == (
            f"the certificate is not for {host}; servers.conf must name what the certificate is for"
        )


def test_another_authority_is_refused_in_words(pool: Pool, tmp_path: Path) -> None:
    pool.create()
    other = tmp_path / "other.crt"
    other.write_bytes(certified("bitfusion-pool pool.example.org", authority=True).certificate)
    assert problem(pool, "127.0.0.1", str(other)) == (
        "the certificate of 127.0.0.1 is not signed by the ca.crt of this client"
    )


def test_a_certificate_out_of_its_time_is_refused_in_words(pool: Pool) -> None:
    made = pool.create(now=NOW - SERVER_LIFETIME - timedelta(days=1))
    assert problem(pool, "127.0.0.1", made.for_clients) == (
        "the certificate of 127.0.0.1 has ended; its administrator must renew it"
    )
    made = pool.create(now=NOW + timedelta(days=3))
    assert problem(pool, "127.0.0.1", made.for_clients) == (
        "the certificate of 127.0.0.1 begins later; one of the two clocks is wrong"
    )


def test_a_service_that_speaks_no_tls_is_told(pool: Pool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        theirs.settimeout(scaled(10))
        context = client_context(Path(pool.create().for_clients).read_text())
        with pytest.raises(ssl.SSLError) as error:
            context.wrap_socket(theirs, server_hostname="pool")
    told = handshake_problem(error.value, "pool")
    assert re.fullmatch(r"no TLS connection with pool: [a-z0-9 ]+", told)


@pytest.mark.parametrize(
    "error", [ssl.SSLError(), ssl.SSLEOFError(8, "EOF occurred"), ssl.SSLZeroReturnError()]
)
def test_why_there_is_no_tls_is_never_empty(error: ssl.SSLError) -> None:
    told = handshake_problem(error, "pool")
    assert re.fullmatch(r"no TLS connection with pool: [a-z0-9 ]+", told)


def test_it_is_renewed_when_two_thirds_of_its_life_are_over(pool: Pool) -> None:
    pool.create()
    before = pool.server.read_bytes()
    assert pool.renew(NOW + SERVER_LIFETIME / 2) is None
    assert pool.server.read_bytes() == before
    made = pool.renew(NOW + SERVER_LIFETIME * 0.7)
    assert made is not None
    assert (made.hosts, made.ends) == (HOSTS, NOW + SERVER_LIFETIME * 1.7)
    assert made.authority_ends == NOW + AUTHORITY_LIFETIME  # not due
    forced = pool.renew(NOW, force=True)
    assert forced is not None
    assert forced.ends == NOW + SERVER_LIFETIME


def test_no_client_loses_its_trust_when_the_authority_is_renewed(pool: Pool, tmp_path: Path) -> None:
    old = tmp_path / "old.crt"
    made = pool.create(now=NOW - AUTHORITY_LIFETIME * 0.7)
    old.write_bytes(Path(made.for_clients).read_bytes())
    made = pool.create(now=NOW)
    assert made.authority_ends == NOW + AUTHORITY_LIFETIME
    assert Path(made.for_clients).read_bytes() != old.read_bytes()
    for authority in (str(old), made.for_clients):
        assert pool.handshake("127.0.0.1", authority) == "TLSv1.3"


def test_no_key_is_given_to_clients_or_to_other_users(pool: Pool) -> None:
    before = os.umask(0)
    try:
        made = pool.create()
    finally:
        os.umask(before)
    assert b"PRIVATE" not in Path(made.for_clients).read_bytes()
    folder = pool.folder / "certificates"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_nothing_is_renewed_before_it_is_made(pool: Pool) -> None:
    with pytest.raises(ClientFailed) as error:
        pool.renew(NOW)
    assert str(error.value) == (
        "there is no certificate; make one: bitfusion-pool certificate create --host HOST"
    )


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda pem: b"x", "it holds no certificate in PEM format"),
        (lambda pem: pem.partition(b"-----BEGIN PRIVATE")[0], "it holds no private key in PEM format"),
        (
            lambda pem: pem.partition(b"-----BEGIN PRIVATE")[0] + certified("x").key,
            "its key does not belong to its certificate",
        ),
    ],
    ids=["text", "no key", "another key"],
)
@pytest.mark.parametrize("name", ["authority", "server"])
def test_a_damaged_file_is_named_and_not_replaced(
    pool: Pool, name: str, damage: Callable[[bytes], bytes], why: str
) -> None:
    pool.create()
    path: Path = getattr(pool, name)
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(PoolUnreadable) as error:
        pool.renew(NOW, force=True)
    assert str(error.value).startswith(f"pool configuration {path} is damaged: {why}. What to do: ")
    assert path.read_bytes() == before


def test_an_authority_that_is_none_signs_nothing(pool: Pool) -> None:
    pool.create()
    leaf = certified("leaf")
    pool.authority.write_bytes(leaf.certificate + leaf.key)
    with pytest.raises(PoolUnreadable, match="is damaged: it is not the certificate of an authority"):
        pool.create(now=NOW)


def test_what_others_put_there_is_not_used(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "certificates").symlink_to("elsewhere")
    with pytest.raises(PoolUnreadable, match=r"cannot be used: .*certificates is no folder"):
        pool.create()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_contexts_need_certificates_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    for text in ("", "x", "é"):
        with pytest.raises(ValueError, match="it holds no certificate in PEM format"):
            client_context(text)
    for name in ("x", "none"):
        with pytest.raises(PoolUnreadable, match=rf"{name} cannot be used: .*certificate create --host HOST"):
            server_context(f"{tmp_path}/{name}")
