"""Certificates that tests show or trust, with their keys: self-signed, or signed by another."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID, ObjectIdentifier

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Certified:
    """A certificate and its key, both PEM; the key as PKCS #8, without a password."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path) -> tuple[Path, Path]:
        """As `tls.crt` and `tls.key`, whose paths are returned."""
        files = folder / "tls.crt", folder / "tls.key"
        files[0].write_bytes(self.certificate)
        files[1].write_bytes(self.key)
        return files


def certified(
    name: str,
    hosts: Sequence[str] = (),
    *,
    authority: bool = False,
    signed_by: Certified | None = None,
    usage: ObjectIdentifier | None = None,
    starts: datetime | None = None,
    lasts: timedelta = timedelta(days=1),
    key: Key | None = None,
) -> Certified:
    """Make one.

    Args:
        name: Its common name, a UTF8String.
        hosts: What it is for: DNS names and addresses.
        authority: Whether it may sign others.
        signed_by: Its authority; by itself without one.
        usage: The only one of the extended usages it has; with None it names none.
        starts: From when on it holds; an hour ago if not given.
        lasts: How long it holds from then on.
        key: Whose certificate it is; a new one on P-256 if not given.
    """
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = subject, key
    if signed_by is not None:
        issuer = x509.load_pem_x509_certificate(signed_by.certificate).subject
        loaded = serialization.load_pem_private_key(signed_by.key, None)
        assert isinstance(loaded, Key)
        signer = loaded
    starts = starts or datetime.now(timezone.utc) - timedelta(hours=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(starts + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
    if usage is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if authority:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = builder.sign(signer, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Certified(certificate.public_bytes(serialization.Encoding.PEM), private)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
