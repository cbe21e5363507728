"""`bitfusion-pool certificate`: what is told, and the sentence of every mistake."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from bitfusion_pool.admin.cli import main
from tests.pool.pool_client import PoolClient


def test_a_certificate_is_made_and_renewed_and_given_to_clients(client: PoolClient, tmp_path: Path) -> None:
    made = client.admin("certificate", "create", "--host", "pool.example.org", "--host", "::1")
    certificates = client.folder / "certificates"
    words = (
        r"certificate for pool\.example\.org, ::1, until 20\d\d-\d\d-\d\d\n"
        rf"clients know it by {certificates}/ca\.crt, until 20\d\d-\d\d-\d\d; "
        r"`bitfusion-pool token create` gives it to them\n"
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert re.fullmatch(words, made.stdout)
    assert client.admin("certificate", "renew").stdout == (
        "the certificate is not due yet; --force renews it all the same\n"
    )
    assert re.fullmatch(words, client.admin("certificate", "renew", "--force").stdout)
    done = client.admin(
        "token", "create", "ada", "--files", f"{tmp_path}/ada", "--server", "pool.example.org"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "ada" / "ca.crt").read_text() == (certificates / "ca.crt").read_text()


@pytest.mark.parametrize(
    "host", ["", "https://pool", "pool:56001", "a b", "[::1]", "fe80::1%a", "10.0.0.300"]
)
def test_what_is_no_host_is_refused(client: PoolClient, host: str) -> None:
    done = client.admin("certificate", "create", "--host", host)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f'Error: wrong setting --host="{host}": must be a DNS name or an address, without a port\n'
    )


def test_without_a_certificate_there_is_nothing_to_renew_nor_to_give(
    client: PoolClient, tmp_path: Path
) -> None:
    assert client.admin("certificate", "renew").stderr == (
        "Error: there is no certificate; make one: bitfusion-pool certificate create --host HOST\n"
    )
    done = client.admin("token", "create", "ada", "--files", f"{tmp_path}/ada", "--server", "pool")
    assert done.stderr == (
        "Error: clients need to know the service: name its certificate with --ca, or make one with "
        "`bitfusion-pool certificate create --host HOST`\n"
    )


def test_clients_are_not_sent_to_a_host_whose_certificate_they_would_refuse(
    client: PoolClient, tmp_path: Path
) -> None:
    client.admin("certificate", "create", "--host", "Pool.example.org", "--host", "2001:db8::1")
    words = ("token", "create", "ada", "--files", f"{tmp_path}/ada", "--server")
    assert client.admin(*words, "pool", "--server", "pool.example.org").stderr == (
        "Error: the certificate is not for pool, and clients would refuse it; make one for every host: "
        "`bitfusion-pool certificate create --host HOST --host …`, or name another authority with --ca\n"
    )
    assert not (tmp_path / "ada").exists()
    for server in ("pool.EXAMPLE.org:7", "[2001:DB8:0::1]"):
        done = client.admin(*words, server, "--force", "--replace")
        assert (done.returncode, done.stderr) == (0, "")


def test_without_the_package_for_certificates_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert main(["--dir", str(tmp_path), "certificate", "create", "--host", "pool"]) == 1
    assert capsys.readouterr().err == (
        "Error: this needs the package cryptography: pip install cryptography\n"
    )
