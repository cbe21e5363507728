"""Certificates, keys, tokens and kubeconfig files of one test cluster, all in its private folder."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FRONT_PROXY = "front-proxy"
"""``front-proxy.crt``, ``.key`` and ``-ca.crt``: what the apiserver shows to the API servers behind it."""
SERVICE_NETWORK = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
"""Of the Service `kubernetes`, told to every pod in KUBERNETES_SERVICE_HOST."""
_LIFE = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Keys:
    """What the components and their clients show each other."""

    ca: Path
    """The authority of the apiserver's certificate, PEM."""
    certificate: Path
    key: Path
    service_account_key: Path
    """Signs the tokens of ServiceAccounts."""
    service_account_public: Path
    tokens: Path
    """The apiserver's --token-auth-file."""
    admin_token: str
    """In the group system:masters."""
    node_tokens: dict[str, str]
    """Of the kubelet of each node, by the node's name."""


def write_keys(folder: Path, advertised: str, nodes: Sequence[str] = ()) -> Keys:
    """Make everything anew in `folder`; `advertised` is the machine's address besides 127.0.0.1."""
    authority_key, authority = _authority()
    key, certificate = _server(authority_key, authority, ["127.0.0.1", advertised])
    account = ec.generate_private_key(ec.SECP256R1())
    admin = secrets.token_hex(24)
    keys = Keys(
        ca=folder / "ca.crt",
        certificate=folder / "apiserver.crt",
        key=folder / "apiserver.key",
        service_account_key=folder / "service-account.key",
        service_account_public=folder / "service-account.pub",
        tokens=folder / "tokens.csv",
        admin_token=admin,
        node_tokens={name: secrets.token_hex(24) for name in nodes},
    )
    _write(keys.ca, authority.public_bytes(serialization.Encoding.PEM))
    _write(keys.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    _write(keys.key, _private(key))
    _write(keys.service_account_key, _private(account))
    public = account.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(keys.service_account_public, public)
    front_authority_key, front_authority = _authority()
    front_key, front = _client(front_authority_key, front_authority, FRONT_PROXY)
    _write(folder / f"{FRONT_PROXY}-ca.crt", front_authority.public_bytes(serialization.Encoding.PEM))
    _write(folder / f"{FRONT_PROXY}.crt", front.public_bytes(serialization.Encoding.PEM))
    _write(folder / f"{FRONT_PROXY}.key", _private(front_key))
    # Read by the apiserver at its start only.
    lines = [f'{admin},admin,admin,"system:masters"']
    for name, token in keys.node_tokens.items():
        lines.append(f'{token},system:node:{name},system:node:{name},"system:nodes"')
    _write(keys.tokens, "".join(f"{line}\n" for line in lines).encode())
    return keys


def write_kubeconfig(path: Path, server: str, ca: Path, token: str, namespace: str = "default") -> Path:
    """A kubeconfig of one user, readable by its owner only. JSON is YAML too."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "test", "cluster": {"server": server, "certificate-authority-data": authority}}
        ],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [
            {"name": "test", "context": {"cluster": "test", "user": "user", "namespace": namespace}},
        ],
        "current-context": "test",
    }
    _write(path, json.dumps(config, indent=1).encode())
    return path


def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test cluster")])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, builder.sign(key, hashes.SHA256())


def _server(
    authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, addresses: list[str]
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    names: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(each)) for each in addresses]
    # The first address of the Service range is the Service `kubernetes`.
    names.append(x509.IPAddress(ipaddress.ip_address(SERVICE_ADDRESS)))
    names += [x509.DNSName(each) for each in ("localhost", "kubernetes", "kubernetes.default.svc")]
    return _issued(authority_key, authority, "kube-apiserver", ExtendedKeyUsageOID.SERVER_AUTH, names)


def _client(
    authority_key: ec.EllipticCurvePrivateKey, authority: x509.Certificate, user: str
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    return _issued(authority_key, authority, user, ExtendedKeyUsageOID.CLIENT_AUTH, [])


def _issued(
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    common_name: str,
    usage: x509.ObjectIdentifier,
    names: list[x509.GeneralName],
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        _builder(subject, authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return key, builder.sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFE)
    )


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
