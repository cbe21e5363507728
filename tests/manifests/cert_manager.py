"""What cert-manager does for our overlay, as its documentation says: issues Certificates, fills in caBundle.

Of issuers it knows `selfSigned` and `ca`. A Certificate is issued when its Secret is missing or was made for
another spec, and again by `renew`. The key is kept where rotationPolicy is Never, whoever made it, and is new
where it is Always, which is the default since 1.18. `ca.crt` is the certificate of who signed. The cainjector
writes `ca.crt` of the Certificate that the annotation names into every caBundle, and writes it again when
somebody else changed it; `injecting` set to False is a cainjector that takes its time.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import threading
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.cluster.api_client import ApiClient, Object, Refused
from tests.cluster.cluster import Cluster

CERTIFICATES = "/apis/cert-manager.io/v1/certificates"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
INJECT = "cert-manager.io/inject-ca-from"
MADE_FOR = "tests.example.com/made-for"  # of a Secret: the spec, hashed
LOOK_S = 0.1
LATER = (404, 409, 422, 429)  # gone, changed meanwhile, or a kind that is new: looked at again
UNITS = {"h": "hours", "m": "minutes", "s": "seconds"}


class CertManager:
    """Runs in a thread of its own while it is entered. `renew` is what its clock, or `cmctl renew`, does."""

    def __init__(self, cluster: Cluster) -> None:
        self._client: ApiClient = cluster.client_as(cluster.token, "cert-manager")
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cert-manager", daemon=True)
        self.injecting = True
        self.issued: list[str] = []
        """Names of Certificates, in the order in which they were issued."""
        self.trouble: Exception | None = None

    def __enter__(self) -> CertManager:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self.trouble is not None and exception[0] is None:
            raise self.trouble

    def renew(self, name: str, namespace: str = "kubeflow") -> None:
        """Issue this Certificate again, now."""
        with self._lock:
            path = f"/apis/cert-manager.io/v1/namespaces/{namespace}/certificates/{name}"
            assert self._issue(self._client.get(path))

    def injected(self, configuration: str) -> bool:
        """Whether every caBundle of it is what it should be."""
        return self._inject(self._client.get(f"{CONFIGURATIONS}/{configuration}"), write=False)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                with self._lock:
                    self._look()
            except Refused as refused:
                if refused.status not in LATER:
                    self.trouble = refused
                    return
            except Exception as error:  # told by __exit__
                self.trouble = error
                return

    def _look(self) -> None:
        for certificate in self._client.get(CERTIFICATES)["items"]:
            secret = self._secret(certificate, certificate["spec"]["secretName"])
            annotations = (secret or {"metadata": {}})["metadata"].get("annotations") or {}
            if annotations.get(MADE_FOR) != _made_for(certificate["spec"]):
                self._issue(certificate)
        if self.injecting:
            for configuration in self._client.get(CONFIGURATIONS)["items"]:
                self._inject(configuration)

    def _secret(self, certificate: Object, name: str) -> Object | None:
        return self._found(f"/api/v1/namespaces/{certificate['metadata']['namespace']}/secrets/{name}")

    def _found(self, path: str) -> Object | None:
        try:
            return self._client.get(path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def _issue(self, certificate: Object) -> bool:
        """Write the Secret; False while the issuer is not there or not ready."""
        metadata, spec = certificate["metadata"], certificate["spec"]
        namespace, name = metadata["namespace"], spec["issuerRef"]["name"]
        issuer = self._found(f"/apis/cert-manager.io/v1/namespaces/{namespace}/issuers/{name}")
        if issuer is None:
            return False
        existing = self._secret(certificate, spec["secretName"])
        key = ec.generate_private_key(ec.SECP256R1())
        if existing is not None and spec["privateKey"].get("rotationPolicy", "Always") == "Never":
            key = _key(existing)
        signer = None
        if "selfSigned" not in issuer["spec"]:
            signer = self._secret(certificate, issuer["spec"]["ca"]["secretName"])
            if signer is None:
                return False
        made = _sign(spec, key, signer)
        data = {
            "tls.crt": _text(made),
            "tls.key": _private(key),
            "ca.crt": signer["data"]["tls.crt"] if signer is not None else _text(made),
        }
        annotations = {MADE_FOR: _made_for(spec)}
        secrets = f"/api/v1/namespaces/{namespace}/secrets"
        if existing is None:
            labels = {"controller.cert-manager.io/fao": "true"}
            body = {"name": spec["secretName"], "annotations": annotations, "labels": labels}
            self._client.create(secrets, {"metadata": body, "type": "kubernetes.io/tls", "data": data})
        else:
            path = f"{secrets}/{spec['secretName']}"
            self._client.merge(path, {"metadata": {"annotations": annotations}, "data": data})
        self.issued.append(metadata["name"])
        return True

    def _inject(self, configuration: Object, write: bool = True) -> bool:
        wanted = (configuration["metadata"].get("annotations") or {}).get(INJECT)
        if wanted is None:
            return False
        namespace, _, name = wanted.partition("/")
        certificate = self._found(f"/apis/cert-manager.io/v1/namespaces/{namespace}/certificates/{name}")
        secret = self._secret(certificate, certificate["spec"]["secretName"]) if certificate else None
        # A Secret that somebody else put there is none of cert-manager's yet.
        if secret is None or MADE_FOR not in (secret["metadata"].get("annotations") or {}):
            return False
        bundle = secret["data"]["ca.crt"]
        if all(each["clientConfig"].get("caBundle") == bundle for each in configuration["webhooks"]):
            return True
        if write:
            operations: list[Object] = [
                {"op": "test", "path": "/metadata/resourceVersion",
                 "value": configuration["metadata"]["resourceVersion"]},
                *({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
                  for index in range(len(configuration["webhooks"]))),
            ]  # fmt: skip
            self._client.patch(f"{CONFIGURATIONS}/{configuration['metadata']['name']}", operations)
        return write


def _made_for(spec: Object) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def _key(secret: Object) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(base64.b64decode(secret["data"]["tls.key"]), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def _name(spec: Object) -> x509.Name:
    # As Go marshals a common name of printable characters.
    named = x509.NameAttribute(NameOID.COMMON_NAME, spec["commonName"], _ASN1Type.PrintableString)
    return x509.Name([named])


def _sign(spec: Object, key: ec.EllipticCurvePrivateKey, signer: Object | None) -> x509.Certificate:
    authority, issuer = key, _name(spec)
    if signer is not None:
        authority = _key(signer)
        issuer = x509.load_pem_x509_certificate(base64.b64decode(signer["data"]["tls.crt"])).subject
    now = datetime.datetime.now(datetime.timezone.utc)
    duration = datetime.timedelta(**{UNITS[spec["duration"][-1]]: int(spec["duration"][:-1])})
    is_authority = bool(spec.get("isCA"))
    usages = spec.get("usages", ["digital signature", "key encipherment"])
    usage = {
        "digital_signature": "digital signature" in usages,
        "key_encipherment": "key encipherment" in usages,
        "key_cert_sign": is_authority,
    }
    unused = (
        "content_commitment", "data_encipherment", "key_agreement",
        "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    unset: dict[str, Any] = dict.fromkeys(unused, False)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(spec))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + duration)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage, **unset), critical=True)
    )
    if names := spec.get("dnsNames"):
        builder = builder.add_extension(x509.SubjectAlternativeName(list(map(x509.DNSName, names))), False)
    if "server auth" in usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
    if is_authority:
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
    if signer is not None:
        signed = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        builder = builder.add_extension(signed, critical=False)
    return builder.sign(authority, hashes.SHA256())


def _text(certificate: x509.Certificate) -> str:
    return base64.b64encode(certificate.public_bytes(serialization.Encoding.PEM)).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    content = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return base64.b64encode(content).decode()
