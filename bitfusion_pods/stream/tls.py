"""TLS 1.3 of the stream: each side trusts exactly the other's certificate, which no authority has signed."""

from __future__ import annotations

import os
import socket
import ssl

_TCP_NOTSENT_LOWAT = 25
_LOWAT = 1 << 17


def context(key: str, own: str, others: str, *, server: bool) -> ssl.SSLContext:
    """That of one side.

    Args:
        key: The file of its private key.
        own: The file of its certificate.
        others: The other side's certificate, PEM.
        server: Whether it is the pod's side, which listens.

    Raises:
        OSError: A file cannot be read, or is none.
        ValueError: `others` is no certificate.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # pods are reached at addresses; the certificate itself is what is known
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(own, key)
    made.load_verify_locations(cadata=others)
    return made


def own_files(folder: str) -> tuple[str, str]:
    """The key and the certificate in a folder of keys, as `bitfusion run` makes them."""
    return os.path.join(folder, "tls.key"), os.path.join(folder, "tls.crt")


def tune(connection: socket.socket) -> None:
    """Replies don't wait for more, and little is queued in the system: a reply stands behind less bulk."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _LOWAT)
