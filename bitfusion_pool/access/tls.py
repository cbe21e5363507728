"""TLS between clients and a service: both sides' contexts, and in words why a handshake failed.

Standard library only: the `bitfusion` command imports it where its pool is on the network.
"""

from __future__ import annotations

import ssl

from bitfusion_client.errors import PoolUnreadable
from bitfusion_client.one_line import words_of

SERVICE_CERTIFICATE = "certificates/server.pem"  # in the pool's folder, as `certificate_files` makes it
# OpenSSL's numbers of what can be wrong with a certificate, X509_V_ERR_… of openssl/x509_vfy.h
_NOT_YET, _ENDED, _SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_ISSUER, _UNVERIFIED = 9, 10, 18, 19, 20, 21
_OTHER_HOST, _OTHER_ADDRESS = 62, 64


def server_context(path: str) -> ssl.SSLContext:
    """For a service whose certificate and key are in the PEM file `path`. Raises PoolUnreadable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # a client that asks for it again and again costs a service much, and itself little
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # nobody comes back to a session: each connection shows its token
    try:
        context.load_cert_chain(path, password=lambda: "")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise PoolUnreadable(
            "",
            f"pool configuration {path} cannot be used: {getattr(error, 'strerror', None) or error}",
            "make a certificate: bitfusion-pool certificate create --host HOST",
        ) from None
    return context


def client_context(authority: str) -> ssl.SSLContext:
    """For a client that trusts the certificates in the text of a ca.crt, and nothing else.

    The service must have one for the very name or address that is asked for.

    Raises:
        ValueError: The text has no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, TypeError, ValueError):
        raise ValueError("it holds no certificate in PEM format") from None
    return context


def handshake_problem(error: ssl.SSLError, host: str) -> str:
    """Why a client's handshake with `host` failed, for people."""
    code = getattr(error, "verify_code", 0)
    if code == _ENDED:
        return f"the certificate of {host} has ended; its administrator must renew it"
    if code == _NOT_YET:
        return f"the certificate of {host} begins later; one of the two clocks is wrong"
    if code in (_OTHER_HOST, _OTHER_ADDRESS):
        return f"the certificate is not for {host}; servers.conf must name what the certificate is for"
    if code in (_SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_ISSUER, _UNVERIFIED):
        return f"the certificate of {host} is not signed by the ca.crt of this client"
    return f"no TLS connection with {host}: {tls_reason(error)}"


def tls_reason(error: OSError) -> str:
    """Why TLS with somebody has failed, in words; OpenSSL's own are names: ``WRONG_VERSION_NUMBER``."""
    reason = getattr(error, "reason", None)
    return (reason.replace("_", " ") if reason and isinstance(reason, str) else words_of(error)).lower()
