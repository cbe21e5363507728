"""The secret of a lease: proves to the service, also after a restart, who its holder is.

It is computed from a key of the service and the lease's id, so that no secret is stored, and none is lost.
"""

from __future__ import annotations

import hashlib
import hmac
import os

from bitfusion_pool.own_files import open_own, write_own

_FILE = "lease_key"
_BYTES = 32


class LeaseSecrets:
    """Makes and checks the secrets of one service."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def secret(self, entry_id: str) -> str:
        """The secret of a lease."""
        return hmac.new(self._key, entry_id.encode(), hashlib.sha256).hexdigest()

    def is_secret(self, entry_id: str, given: str) -> bool:
        """Whether `given` is the secret of this lease; takes as long for a wrong one as for the right one."""
        return hmac.compare_digest(self.secret(entry_id).encode(), given.encode())


def read_key(folder: str) -> bytes:
    """The key in the service's folder, which is made if there is none or it is damaged. Raises OSError."""
    path = f"{folder}/{_FILE}"
    try:
        with open(open_own(path, os.O_RDONLY), encoding="ascii", errors="replace") as file:
            key = bytes.fromhex(file.read(4 * _BYTES).strip())
    except (FileNotFoundError, ValueError):
        key = b""
    if len(key) != _BYTES:
        key = os.urandom(_BYTES)
        write_own(path, key.hex() + "\n")
    return key
