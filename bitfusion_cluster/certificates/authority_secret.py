"""What the Secret of the built-in certificate authority holds, and how one CA follows another. Pure.

The Secret is of type ``kubernetes.io/tls``: ``tls.crt`` and ``tls.key`` are the CA that signs,
``previous.crt`` its predecessor, trusted until it ends: other replicas may still show a leaf it signed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from bitfusion_cluster.certificates.authority import (
    Pair,
    UnusableCertificate,
    bundle,
    expires,
    load_authority,
    named_as_text,
    new_authority,
    renewal_due,
)

SECRET_TYPE = "kubernetes.io/tls"
CERTIFICATE, KEY, PREVIOUS = "tls.crt", "tls.key", "previous.crt"


@dataclass(frozen=True, slots=True)
class Authorities:
    """The CA that signs, and its predecessor's certificate, empty if there is none."""

    current: Pair
    previous: bytes = b""

    def trusted(self, now: datetime, signer: bytes = b"") -> bytes:
        """The ``caBundle``: every CA whose leaves may be met, the signing one first.

        `signer` is the CA of the leaf that is still shown, should an admin have put another into the Secret.
        """
        return bundle((self.current.certificate, self.previous, signer), now)


def read_authorities(data: Mapping[str, str] | None) -> Authorities:
    """Read a Secret's ``data``. Raises UnusableCertificate in words that name the key.

    A broken predecessor is left out: it can be missed.
    """
    texts = data or {}
    current = Pair(_decoded(texts, CERTIFICATE), _decoded(texts, KEY))
    load_authority(current)
    try:
        previous = _decoded(texts, PREVIOUS) if PREVIOUS in texts else b""
        if previous:
            expires(previous)
    except UnusableCertificate:
        previous = b""
    return Authorities(current, previous)


def write_authorities(authorities: Authorities) -> dict[str, str]:
    """The Secret's ``data``; the inverse of `read_authorities`."""
    texts = {CERTIFICATE: authorities.current.certificate, KEY: authorities.current.key}
    if authorities.previous:
        texts[PREVIOUS] = authorities.previous
    return {name: base64.b64encode(content).decode() for name, content in texts.items()}


def renewed(authorities: Authorities, name: str, now: datetime, old_name: str = "") -> Authorities | None:
    """What the leader makes of the Secret now; None: it may stay as it is.

    One that was once made under `old_name` is replaced by one called `name`, as cert-manager calls it.
    """
    current = authorities.current.certificate
    if renewal_due(current, now) or (old_name and named_as_text(current, old_name)):
        return Authorities(new_authority(name, now), authorities.current.certificate)
    if authorities.previous and expires(authorities.previous) <= now:
        return Authorities(authorities.current)
    return None


def _decoded(texts: Mapping[str, str], name: str) -> bytes:
    text = texts.get(name)
    if not isinstance(text, str):
        raise UnusableCertificate(f"{name} is missing")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnusableCertificate(f"{name} is not base64") from None
