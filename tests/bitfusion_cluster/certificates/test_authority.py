"""The built-in authority's X.509: what a Go client (the apiserver) accepts, and when it is renewed."""

from __future__ import annotations

import ssl
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from bitfusion_cluster.certificates.authority import (
    Pair,
    UnusableCertificate,
    bundle,
    doubts,
    expires,
    issue,
    load_authority,
    new_authority,
    renewal_due,
    service_names,
)
from tests.bitfusion_cluster.certificates.pairs import pair

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
NAMES = service_names("bitfusion-notebook-controller", "kubeflow")


@pytest.fixture(scope="module")
def authority() -> Pair:
    return new_authority("ca", NOW)


def _verify(leaf: Pair, trusted: bytes, name: str, at: datetime) -> None:
    store = Store(x509.load_pem_x509_certificates(trusted))
    verifier = PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(name))
    verifier.verify(x509.load_pem_x509_certificate(leaf.certificate), [])


def test_a_leaf_is_valid_for_every_name_of_the_service(authority: Pair) -> None:
    leaf = issue(authority, NAMES, NOW)
    for name in NAMES:
        _verify(leaf, authority.certificate, name, NOW)
    assert NAMES[0] == "bitfusion-notebook-controller.kubeflow.svc"
    with pytest.raises(x509.verification.VerificationError):
        _verify(leaf, authority.certificate, "another.kubeflow.svc", NOW)


def test_a_leaf_may_be_for_an_address(authority: Pair) -> None:
    leaf = x509.load_pem_x509_certificate(issue(authority, [NAMES[0], "127.0.0.1", "::1"], NOW).certificate)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_a_leaf_is_usable_for_openssl(authority: Pair) -> None:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    assert context.cert_store_stats()["x509_ca"] == 1


def test_lifetimes(authority: Pair) -> None:
    leaf = issue(authority, NAMES, NOW)
    assert expires(leaf.certificate) == NOW + timedelta(days=90)
    assert expires(authority.certificate) == NOW + timedelta(days=3650)
    # an apiserver whose clock is behind
    _verify(leaf, authority.certificate, NAMES[0], NOW - timedelta(minutes=59))


def test_a_leaf_does_not_outlive_its_authority(authority: Pair) -> None:
    late = expires(authority.certificate) - timedelta(days=10)
    assert expires(issue(authority, NAMES, late).certificate) == expires(authority.certificate)


@pytest.mark.parametrize(("days", "due"), [(0, False), (59.9, False), (60.1, True), (91, True)])
def test_a_leaf_is_due_after_two_thirds_of_its_life(authority: Pair, days: float, due: bool) -> None:
    leaf = issue(authority, NAMES, NOW)
    assert renewal_due(leaf.certificate, NOW + timedelta(days=days)) is due


def test_a_common_name_may_be_longer_than_x509_allows() -> None:
    name = "a" * 63
    leaf = issue(new_authority("b" * 200, NOW), service_names(name, "c" * 63), NOW)
    assert x509.load_pem_x509_certificate(leaf.certificate).subject.rfc4514_string() == f"CN={name}."


@pytest.mark.parametrize(
    ("names", "days", "words"),
    [
        (NAMES, 0, []),
        (["*.kubeflow.svc"], 0, []),
        (["*.svc"], 0, [f"it is not for {NAMES[0]} (its DNS names: *.svc)"]),
        (["127.0.0.1"], 0, [f"it is not for {NAMES[0]} (its DNS names: none)"]),
        (NAMES, 90, ["it ended on 2027-02-19 12:00 UTC"]),
        (NAMES, -1, ["it is not valid before 2026-11-21 11:00 UTC"]),
        (["a.b"], 91, ["it ended on 2027-02-19 12:00 UTC", f"it is not for {NAMES[0]} (its DNS names: a.b)"]),
    ],
)
def test_what_a_client_would_refuse_is_known_before(
    authority: Pair, names: list[str], days: int, words: list[str]
) -> None:
    leaf = issue(authority, names, NOW)
    assert doubts(leaf.certificate, NAMES[0], NOW + timedelta(days=days)) == words


def test_a_bundle_keeps_the_order_and_drops_what_is_double_or_over(authority: Pair) -> None:
    other = new_authority("ca", NOW - timedelta(days=3651))
    third = new_authority("ca", NOW)
    whole = bundle([third.certificate, b"", authority.certificate.strip(), third.certificate], NOW)
    assert whole == third.certificate + authority.certificate
    assert bundle([other.certificate, third.certificate], NOW) == third.certificate


def test_two_authorities_of_one_name_in_a_bundle(authority: Pair) -> None:
    other = new_authority("ca", NOW)
    both = authority.certificate + other.certificate
    for signer in (authority, other):
        _verify(issue(signer, NAMES, NOW), both, NAMES[0], NOW)


def test_a_key_is_never_shown(authority: Pair) -> None:
    assert "KEY" not in repr(authority)


def test_what_is_no_authority_is_told(authority: Pair) -> None:
    leaf = issue(authority, NAMES, NOW)
    rsa = pair("RSA")
    cases = {
        Pair(b"nothing", authority.key): "it holds no certificate in PEM format",
        Pair(authority.certificate, b"nothing"): "its key is not a private key in PEM format",
        Pair(authority.certificate, pair(password=b"x").key): "its key is not a private key in PEM format",
        Pair(authority.certificate, leaf.key): "its key does not belong to its certificate",
        leaf: "its certificate is not one of a certificate authority",
        rsa: "its key is not an ECDSA key",
    }
    for case, words in cases.items():
        with pytest.raises(UnusableCertificate) as caught:
            load_authority(case)
        assert str(caught.value) == words
