"""Where a pool keeps its certificates: `certificates/` in the service's folder, mode 0700.

``authority.pem`` and ``server.pem`` hold a certificate and its key each, in one file that is replaced as a
whole, so that nobody meets one half of a change; ``ca.crt`` is what clients get.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from bitfusion_client.errors import ClientFailed, PoolUnreadable
from bitfusion_pool.access.certificates import (
    WrongCertificate,
    ends,
    hosts_of,
    new_authority,
    renewal_due,
    renewed_authority,
    sign_server,
    without_key,
)
from bitfusion_pool.access.client_files import certificate_for_clients
from bitfusion_pool.access.token_file import cannot_use
from bitfusion_pool.own_files import NotOurs, open_own, write_own

FOLDER = "certificates"  # as client_files.certificate_for_clients has it
AUTHORITY, SERVER = "authority.pem", "server.pem"
MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Certificates:
    """What is in force: the service's hosts, when its certificate and authority end, the file for clients."""

    hosts: tuple[str, ...]
    ends: datetime
    authority_ends: datetime
    for_clients: str


def create_certificates(pool: str, hosts: Sequence[str], now: datetime) -> Certificates:
    """Sign a certificate for these hosts, by the authority that is there or a new one.

    Args:
        pool: The pool's folder, which is this user's alone.
        hosts: DNS names and addresses, at least one.
        now: The time.

    Raises:
        PoolUnreadable: A file is damaged, or cannot be written.
    """
    folder = f"{pool}/{FOLDER}"
    path = f"{folder}/{AUTHORITY}"
    with _told(folder, path):
        _ensure(folder)
        authority = known = _read(path)
        if not known:
            authority = new_authority(hosts[0], now)
        elif renewal_due(known, now):
            authority = renewed_authority(known, now)
        if authority != known:
            write_own(path, authority.decode(), durable=True)
        server = sign_server(authority, hosts, now)
        write_own(certificate_for_clients(pool), without_key(authority).decode(), durable=True)
        write_own(f"{folder}/{SERVER}", server.decode(), durable=True)
    return Certificates(hosts_of(server), ends(server), ends(authority), certificate_for_clients(pool))


def hosts_of_server(pool: str) -> tuple[str, ...]:
    """The hosts that the service's certificate is for; none if there is none. Raises PoolUnreadable."""
    path = f"{pool}/{FOLDER}/{SERVER}"
    with _told(path, path):
        pem = _read(path)
        return hosts_of(pem) if pem else ()


def renew_certificates(pool: str, now: datetime, force: bool = False) -> Certificates | None:
    """Sign the service's certificate again for the same hosts if two thirds of its life are over, or `force`.

    Returns:
        None if it is not due.

    Raises:
        ClientFailed: There is none.
        PoolUnreadable: A file is damaged, or cannot be read or written.
    """
    path = f"{pool}/{FOLDER}/{SERVER}"
    with _told(path, path):
        server = _read(path)
        is_due = bool(server) and renewal_due(server, now)
    if not server:
        raise ClientFailed(
            "", "there is no certificate; make one: bitfusion-pool certificate create --host HOST"
        )
    if not is_due and not force:
        return None
    return create_certificates(pool, hosts_of(server), now)


def _ensure(folder: str) -> None:
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if os.path.islink(folder) or not os.path.isdir(folder):
            raise NotOurs(folder, "is no folder") from None
        return
    os.chmod(folder, 0o700)  # whatever the umask


def _read(path: str) -> bytes:
    try:
        with open(open_own(path, os.O_RDONLY), "rb") as file:
            return file.read(MAX_BYTES)
    except FileNotFoundError:
        return b""


@contextmanager
def _told(path: str, certificate: str) -> Iterator[None]:
    """Turns what is wrong with the file `certificate`, and with using `path`, into PoolUnreadable."""
    try:
        yield
    except WrongCertificate as error:
        raise PoolUnreadable(
            "",
            f"pool configuration {certificate} is damaged: {error}",
            f"put a copy back, or move it away: mv {certificate} {certificate}.damaged; "
            "clients of a new authority need new files",
        ) from None
    except OSError as error:
        raise cannot_use(path, error) from None
