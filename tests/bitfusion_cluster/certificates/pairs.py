"""Certificates for the tests, ECDSA and RSA, as cert-manager or an admin would bring them."""

from __future__ import annotations

import datetime
import functools

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from bitfusion_cluster.certificates.authority import Pair, new_authority
from tests.support.certificates import Certified, Key, certified


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
    authority = Certified(_authority().certificate, _authority().key)
    key = new_key(kind)
    made = certified(name, [name, "127.0.0.1"], signed_by=authority, key=key)
    if password is None:
        return Pair(made.certificate, made.key)
    protection = serialization.BestAvailableEncryption(password)
    return Pair(
        made.certificate,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection),
    )


def serial(certificate: bytes) -> int:
    """Of a PEM or DER certificate."""
    load = (
        x509.load_pem_x509_certificate if certificate.startswith(b"-----") else x509.load_der_x509_certificate
    )
    return load(certificate).serial_number
