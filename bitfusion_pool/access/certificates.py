"""X.509 of a pool's own certificate authority: makes it, renews it, signs the service's certificate. No I/O.

Keys are ECDSA P-256. Times are aware datetimes, passed in. A text of PEM holds a certificate and its key.
The authority is renewed under its own name and key, so that clients who have an older ca.crt trust what it
signs until that one ends, and those with the newer one trust what was signed before
(docs/decisions/0030-built-in-certificate-authority.md). `bitfusion_cluster.certificates.authority` has some
of these lines, too: the pool knows nothing of a cluster, and that one is about Secrets and `caBundle`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=3650)
SERVER_LIFETIME = timedelta(days=365)
CLOCK_SKEW = timedelta(hours=1)  # a client's clock may be behind ours
LONGEST_COMMON_NAME = 64  # RFC 5280, ub-common-name


class WrongCertificate(ValueError):
    """A text that holds no certificate with its key, or not one of an authority. `str()` says which."""


def new_authority(host: str, now: datetime) -> bytes:
    """An authority that may sign services' certificates only, for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"bitfusion-pool {host}"[:LONGEST_COMMON_NAME]
    return _authority(key, x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), now)


def renewed_authority(authority: bytes, now: datetime) -> bytes:
    """The same name and key for another ten years. Raises WrongCertificate."""
    certificate, key = _load(authority)
    return _authority(key, certificate.subject, now)


def sign_server(authority: bytes, hosts: Sequence[str], now: datetime) -> bytes:
    """The certificate, with a new key, of a service that is reached at these DNS names and addresses.

    Raises:
        WrongCertificate: `authority` is none, or has ended.
    """
    issuer, issuer_key = _load(authority)
    if not _is_authority(issuer):
        raise WrongCertificate("it is not the certificate of an authority")
    until = min(now + SERVER_LIFETIME, issuer.not_valid_after_utc)
    if until <= now:
        raise WrongCertificate(f"it ended on {issuer.not_valid_after_utc:%Y-%m-%d}")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:LONGEST_COMMON_NAME])])
    builder = (
        _builder(name, issuer.subject, key, now, until)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    return _text(builder.sign(issuer_key, hashes.SHA256()), key)


def hosts_of(pem: bytes) -> tuple[str, ...]:
    """The names and addresses that a certificate is for. Raises WrongCertificate."""
    certificate, _ = _load(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


def ends(pem: bytes) -> datetime:
    """When a certificate ends. Raises WrongCertificate."""
    return _load(pem)[0].not_valid_after_utc


def renewal_due(pem: bytes, now: datetime) -> bool:
    """Whether two thirds of a certificate's life are over. Raises WrongCertificate."""
    certificate, _ = _load(pem)
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= start + (end - start) * 2 / 3


def without_key(pem: bytes) -> bytes:
    """The certificate alone, for clients. Raises WrongCertificate."""
    return _load(pem)[0].public_bytes(serialization.Encoding.PEM)


def _authority(key: ec.EllipticCurvePrivateKey, name: x509.Name, now: datetime) -> bytes:
    builder = (
        _builder(name, name, key, now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _text(builder.sign(key, hashes.SHA256()), key)


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(timezone.utc) - CLOCK_SKEW)
        .not_valid_after(until.astimezone(timezone.utc))
    )


def _key_usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _load(pem: bytes) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise WrongCertificate("it holds no certificate in PEM format") from None
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise WrongCertificate("it holds no private key in PEM format") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise WrongCertificate("its key does not belong to its certificate")
    return certificate, key


def _text(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
