"""The three files that a client on another machine gets: servers.conf, client.yaml, ca.crt.

They have the shape of the real client's, whose users and injectors know where such files go.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from bitfusion_client.errors import ClientFailed
from bitfusion_pool.access.network_files import AUTHORITY_FILE, CLIENT_FILE, MAX_BYTES, SERVERS_FILE
from bitfusion_pool.own_files import NotOurs, read_text, trusted_path, write_own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bitfusion_pool.access.addresses import Address

FILES = (SERVERS_FILE, CLIENT_FILE, AUTHORITY_FILE)

_CLIENT = """\
version: ""
ssl: true
cacertpath: {authority}
keypath: ""
certpath: ""
dbcertpath: ""
min-tls-version: ""
timeout: 3s
authconfig:
  enabled: true
  username: ""
  password: ""
  dbusername: ""
  dbpassword: ""
  token: {token}
network: {{}}
"""


def certificate_for_clients(pool: str) -> str:
    """The ca.crt that `certificate create` makes in the pool's folder."""
    return f"{pool}/certificates/{AUTHORITY_FILE}"


def servers_text(servers: Sequence[Address]) -> str:
    """A servers.conf with one address for each server."""
    return "servers:\n" + "".join(f'- addresses:\n  - "{server}"\n' for server in servers)


def client_text(token: str) -> str:
    """A client.yaml; ca.crt is looked for beside it."""
    return _CLIENT.format(authority=AUTHORITY_FILE, token=token)


def read_authority(path: str) -> str:
    """The certificates by which clients know the service, PEM.

    Raises:
        ClientFailed: The file has none, or a private key, which no client may get.
    """
    try:
        text = read_text(path, MAX_BYTES)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ClientFailed("", f"cannot read {path}: {why}") from None
    if "PRIVATE KEY-----" in text:
        raise ClientFailed("", f"{path} holds a private key, which no client may get; name the certificate")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise ClientFailed(
            "", f"{path} holds no certificate in PEM format (-----BEGIN CERTIFICATE-----)"
        ) from None
    return text if text.endswith("\n") else f"{text}\n"


def prepare_folder(folder: str, force: bool) -> str:
    """Make the folder for a client's files, mode 0700, unless it is there; returns its path without links.

    Raises:
        ClientFailed: It cannot be made, somebody else has a say in it, or there are such files already.
    """
    try:
        path = trusted_path(os.path.abspath(folder))
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
            os.chmod(path, 0o700)  # whatever the umask
            path = trusted_path(path)  # somebody may have been faster
    except NotOurs as error:
        raise ClientFailed("", f"{error.strerror}: a token must not be written there") from None
    except OSError as error:
        raise ClientFailed("", f"cannot make the folder {folder}: {error.strerror}") from None
    there = [name for name in FILES if os.path.lexists(f"{path}/{name}")]
    if there and not force:
        raise ClientFailed("", f"there is {path}/{there[0]} already; --force replaces it")
    return path


def write_client_files(folder: str, servers: Sequence[Address], token: str, authority: str) -> None:
    """Write the three files into a folder of `prepare_folder`, mode 0600. Raises ClientFailed."""
    texts = {SERVERS_FILE: servers_text(servers), CLIENT_FILE: client_text(token), AUTHORITY_FILE: authority}
    for name, text in texts.items():
        try:
            write_own(f"{folder}/{name}", text)
        except OSError as error:
            raise ClientFailed("", f"cannot write {folder}/{name}: {error.strerror}") from None
