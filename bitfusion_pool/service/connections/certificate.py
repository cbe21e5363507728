"""The service's certificate, read again when its file has changed."""

from __future__ import annotations

import logging
import os
import ssl

from bitfusion_client.errors import PoolUnreadable
from bitfusion_pool.access.tls import server_context

_log = logging.getLogger(__name__)


class ServiceCertificate:
    """What new connections are shown; those that are open keep what they have.

    Raises:
        PoolUnreadable: The file cannot be used.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = _version(path)
        self._context = server_context(path)

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    def look_again(self) -> None:
        """Read the file if it has changed; one that cannot be used is told to the log, and not used."""
        found = _version(self._path)
        if found == self._seen:
            return
        self._seen = found
        try:
            self._context = server_context(self._path)
        except PoolUnreadable as error:
            _log.error("certificate cannot be used", extra={"reason": str(error)})
        else:
            _log.info("certificate read again", extra={"file": self._path})


def _version(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
