"""X.509 of the built-in certificate authority: makes a CA, issues leaves, knows when to renew. No I/O.

What it has in common with `bitfusion_pool.access.certificates` stands there a second time: both need
cryptography, which only programs with certificates of their own install. The room that both may import has to
stay without it, and a room for 37 lines would be one more for a reader.

A `Pair` is what a Secret of type ``kubernetes.io/tls`` holds: a certificate (a leaf is followed by nothing,
its CA stands in ``caBundle``) and its private key, both PEM. Keys are ECDSA P-256: made in a millisecond,
accepted by every TLS 1.2 client. Times are aware datetimes, passed in, so that renewal can be tested.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=90)
# The clock of an apiserver may be behind ours.
CLOCK_SKEW = timedelta(hours=1)
LONGEST_COMMON_NAME = 64  # RFC 5280, ub-common-name
PRINTABLE = re.compile(r"[A-Za-z0-9 '()+,./:=?-]+")  # a PrintableString, X.680


class UnusableCertificate(ValueError):
    """PEM text that is no certificate, no key, no pair, or no certificate authority. `str()` says which."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM. The key is left out of `repr`, and so of every log."""

    certificate: bytes
    key: bytes = field(repr=False)


def new_authority(name: str, now: datetime) -> Pair:
    """A self-signed CA that may sign leaves only, valid for ten years from `now`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    certificate = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue(authority: Pair, names: Sequence[str], now: datetime) -> Pair:
    """A serving certificate for these DNS names and IP addresses, valid for 90 days or as long as its CA.

    Raises UnusableCertificate if `authority` is none, or has ended.
    """
    issuer, issuer_key = load_authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    lifetime = min(LEAF_LIFETIME, issuer.not_valid_after_utc - now)
    if lifetime <= timedelta():
        raise UnusableCertificate(f"its certificate ended on {issuer.not_valid_after_utc:%Y-%m-%d}")
    certificate = (
        _builder(_subject(names[0]), issuer.subject, key.public_key(), now, lifetime)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        # The bundle may hold two CAs of one name: the key identifier tells which of them signed.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names of a Service's certificate; the apiserver asks for the first."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
        f"{service}.{namespace}",
    )


def named_as_text(certificate: bytes, name: str) -> bool:
    """Whether its subject is `name` as a UTF8String: once made here. Raises UnusableCertificate."""
    old = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:LONGEST_COMMON_NAME])])
    return _load_certificate(certificate).subject.public_bytes() == old.public_bytes()


def expires(certificate: bytes) -> datetime:
    """When the first certificate of this PEM text ends. Raises UnusableCertificate."""
    return _load_certificate(certificate).not_valid_after_utc


def renewal_due(certificate: bytes, now: datetime) -> bool:
    """Whether two thirds of the first certificate's lifetime are over. Raises UnusableCertificate."""
    loaded = _load_certificate(certificate)
    start, end = loaded.not_valid_before_utc, loaded.not_valid_after_utc
    return now >= start + (end - start) * 2 / 3


def doubts(certificate: bytes, name: str, now: datetime) -> list[str]:
    """Why a client that asks for `name` would refuse this certificate, as far as it shows by itself.

    For certificates that others made; who signed them is not looked at. Raises UnusableCertificate.
    """
    loaded = _load_certificate(certificate)
    found = []
    if now >= loaded.not_valid_after_utc:
        found.append(f"it ended on {loaded.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if now < loaded.not_valid_before_utc:
        found.append(f"it is not valid before {loaded.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")
    try:
        named = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = named.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, ValueError):
        names = []
    if not any(_matches(pattern.lower(), name) for pattern in names):
        shown = ", ".join(names[:5]) or "none"
        found.append(f"it is not for {name} (its DNS names: {shown})")
    return found


def bundle(certificates: Iterable[bytes], now: datetime) -> bytes:
    """One PEM text of these certificates in their order, each once, without those that have ended."""
    kept: dict[bytes, None] = {}
    for certificate in certificates:
        if certificate and expires(certificate) > now:
            kept[certificate.strip() + b"\n"] = None
    return b"".join(kept)


def load_authority(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The CA's certificate and key as objects. Raises UnusableCertificate in words for the admin."""
    certificate = _load_certificate(pair.certificate)
    try:
        key = serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnusableCertificate("its key is not a private key in PEM format") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UnusableCertificate("its key is not an ECDSA key")
    if key.public_key() != certificate.public_key():
        raise UnusableCertificate("its key does not belong to its certificate")
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        raise UnusableCertificate("its certificate is not one of a certificate authority") from None
    if not constraints.ca:
        raise UnusableCertificate("its certificate is not one of a certificate authority")
    return certificate, key


def _load_certificate(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise UnusableCertificate("it holds no certificate in PEM format") from None


def _matches(pattern: str, name: str) -> bool:
    # RFC 6125: * stands for the whole first label, and for nothing else
    first, _, rest = pattern.partition(".")
    return pattern == name or (first == "*" and rest == name.partition(".")[2])


def _subject(name: str) -> x509.Name:
    # As Go writes it, and so cert-manager: apiservers look for an issuer by the bytes of its name.
    name = name[:LONGEST_COMMON_NAME]
    kind = None  # the library's choice, a UTF8String
    if PRINTABLE.fullmatch(name):
        try:
            from cryptography.x509.name import _ASN1Type

            kind = _ASN1Type.PrintableString
        except (ImportError, AttributeError):
            pass  # private, so it may go: cert-manager's authority of this name is another one then
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name, kind)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    start = now.astimezone(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - CLOCK_SKEW)
        .not_valid_after(start + lifetime)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
