"""Certificates for the tests, ECDSA and RSA, as cert-manager or an admin would bring them."""

from __future__ import annotations

import datetime
import functools
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from notebook_controller_patch.certificates.authority import Pair, new_authority

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@functools.cache
def _authority() -> Pair:
    return new_authority("certificates of the tests", datetime.datetime.now(datetime.timezone.utc))


def trusted() -> str:
    """The CA that signed every `pair`, PEM."""
    return _authority().certificate.decode()


def new_key(kind: str) -> Key:
    if kind == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def pair(kind: str = "ECDSA", name: str = "localhost", password: bytes | None = None) -> Pair:
    """A fresh serving certificate for `name` and 127.0.0.1, its key ECDSA or RSA, encrypted if asked."""
    issuer = x509.load_pem_x509_certificate(_authority().certificate)
    issuer_key = serialization.load_pem_private_key(_authority().key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = new_key(kind)
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        protection = serialization.BestAvailableEncryption(password)
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection),
    )


def serial(certificate: bytes) -> int:
    """Of a PEM or DER certificate."""
    load = (
        x509.load_pem_x509_certificate if certificate.startswith(b"-----") else x509.load_der_x509_certificate
    )
    return load(certificate).serial_number
