"""The content of the authority's Secret: written, read back, broken, and how one CA follows another."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509

from bitfusion_cluster.certificates.authority import Pair, UnusableCertificate, issue, new_authority
from bitfusion_cluster.certificates.authority_secret import (
    Authorities,
    read_authorities,
    renewed,
    write_authorities,
)
from tests.support.certificates import certified

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
YEARS = timedelta(days=365)
FIRST, SECOND = new_authority("first", NOW), new_authority("second", NOW)


@pytest.mark.parametrize("authorities", [Authorities(FIRST), Authorities(SECOND, FIRST.certificate)])
def test_what_is_written_is_read_back(authorities: Authorities) -> None:
    assert read_authorities(write_authorities(authorities)) == authorities


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"tls.crt": ""}, "it holds no certificate in PEM format"),
        ({"tls.crt": "%"}, "tls.crt is not base64"),
        ({"tls.key": base64.b64encode(b"x").decode()}, "its key is not a private key in PEM format"),
        ({"tls.key": base64.b64encode(SECOND.key).decode()}, "its key does not belong to its certificate"),
    ],
)
def test_a_broken_secret_is_refused_with_a_reason(broken: dict[str, str], message: str) -> None:
    with pytest.raises(UnusableCertificate, match=message):
        read_authorities({**write_authorities(Authorities(FIRST)), **broken})


@pytest.mark.parametrize("data", [None, {}, {"tls.crt": base64.b64encode(FIRST.certificate).decode()}])
def test_a_missing_key_is_named(data: dict[str, str] | None) -> None:
    with pytest.raises(UnusableCertificate, match=r"tls\.(crt|key) is missing"):
        read_authorities(data)


def test_a_leaf_is_no_authority() -> None:
    with pytest.raises(UnusableCertificate, match="not one of a certificate authority"):
        read_authorities(write_authorities(Authorities(issue(FIRST, ["localhost"], NOW))))


@pytest.mark.parametrize("previous", ["", "%", base64.b64encode(b"no certificate").decode()])
def test_a_broken_predecessor_is_left_out(previous: str) -> None:
    data = {**write_authorities(Authorities(SECOND, FIRST.certificate)), "previous.crt": previous}
    assert read_authorities(data) == Authorities(SECOND)


def test_a_young_authority_stays() -> None:
    assert renewed(Authorities(FIRST), "ca", NOW + 6 * YEARS) is None


def test_after_two_thirds_of_its_life_a_new_one_signs_and_the_old_one_stays_trusted() -> None:
    later = NOW + 7 * YEARS
    fresh = renewed(Authorities(FIRST), "ca", later)
    assert fresh is not None
    assert fresh.current != FIRST
    assert fresh.previous == FIRST.certificate
    assert fresh.trusted(later) == fresh.current.certificate + FIRST.certificate
    assert renewed(fresh, "ca", later) is None


def test_a_predecessor_that_has_ended_is_dropped() -> None:
    later = NOW + 11 * YEARS
    young = new_authority("young", later)
    assert renewed(Authorities(young, FIRST.certificate), "ca", later) == Authorities(young)
    assert Authorities(young, FIRST.certificate).trusted(later) == young.certificate


def test_the_signer_of_the_leaf_that_is_shown_is_trusted_once() -> None:
    assert Authorities(SECOND).trusted(NOW, FIRST.certificate) == SECOND.certificate + FIRST.certificate
    assert Authorities(FIRST).trusted(NOW, FIRST.certificate) == FIRST.certificate


def test_an_authority_that_was_made_under_its_old_name_is_replaced_by_one_as_cert_manager_names_it() -> None:
    old = called_as_text("the-ca")
    assert renewed(Authorities(old), "controller", NOW) is None
    fresh = renewed(Authorities(old), "controller", NOW, old_name="the-ca")
    assert fresh is not None
    assert fresh.previous == old.certificate
    # Go writes a PrintableString, and looks for an issuer by these bytes.
    subject = x509.load_pem_x509_certificate(fresh.current.certificate).subject.public_bytes()
    assert subject.endswith(b"\x06\x03\x55\x04\x03\x13\x0acontroller")
    assert renewed(fresh, "controller", NOW, old_name="the-ca") is None


def test_an_admins_own_authority_is_not_replaced_for_its_name() -> None:
    own = Authorities(called_as_text("example.com"))
    assert renewed(own, "controller", NOW, old_name="the-ca") is None


def called_as_text(name: str) -> Pair:
    """A CA whose name is a UTF8String."""
    made = certified(name, authority=True, starts=NOW, lasts=10 * YEARS)
    return Pair(made.certificate, made.key)
