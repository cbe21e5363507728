"""The serving certificate of the admission server, replaced while it serves; read from a folder of files.

`ServingCertificate.context` is given to the server once. It holds no certificate itself: its SNI callback,
which OpenSSL calls in every handshake, with or without a server name, puts the newest context in. A
fresh context for each certificate is what makes a change of the key type work: a context keeps one
certificate a key type, so that after `load_cert_chain` with an RSA key on a context with an ECDSA
one the old certificate stays in use. Connections that are open go on with what they began with.

Two sources feed it: `CertificateFolder` (a mounted Secret, as cert-manager fills it) and the built-in
authority (`built_in_authority.py`). With a client authority (`ClientAuthorityFile`) a handshake succeeds only
for who shows a certificate that it signed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
import threading
from datetime import datetime, timezone
from pathlib import Path

from bitfusion_client.one_line import words_of
from bitfusion_cluster.certificates.authority import Pair, UnusableCertificate, doubts, expires

CERTIFICATE_FILE = "tls.crt"
KEY_FILE = "tls.key"
# OpenSSL's reasons: same key type, another key type
MISMATCH = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
LARGEST_FILE = 1 << 20  # bytes; what a Secret can hold

log = logging.getLogger(__name__)


class ServingCertificate:
    """The TLS side of a server whose certificate changes while it runs. Safe to use from every thread."""

    def __init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        self._pair: Pair | None = None
        self._clients = ""  # PEM; empty: nobody is asked for a certificate
        self._expires: datetime | None = None
        self.context = _bare_context()
        self.context.sni_callback = self._choose

    @property
    def loaded(self) -> bool:
        """Whether there is a certificate to show; before that every handshake fails."""
        return self._current is not None

    @property
    def expires(self) -> datetime | None:
        """When the certificate in use ends; None before there is one."""
        return self._expires

    def use(self, pair: Pair) -> None:
        """Show this certificate from the next handshake on.

        Raises UnusableCertificate and keeps the old one if the two are no certificate and its key.
        """
        ends = expires(pair.certificate)
        context = self._context()
        _load(context, pair)
        self._current, self._pair, self._expires = context, pair, ends

    def demand(self, authority: bytes) -> None:
        """Refuse, from the next handshake on, whoever shows no certificate that this CA (PEM) signed.

        Raises UnusableCertificate and keeps what was demanded before if it holds no certificate.
        """
        before, self._clients = self._clients, authority.decode("ascii", "replace")
        try:
            # The mode is the first context's for the whole handshake, the authorities are the second's.
            self._demand_of(self.context)
            if self._pair is not None:
                self.use(self._pair)
        except UnusableCertificate:
            self._clients = before
            raise

    def _context(self) -> ssl.SSLContext:
        context = _bare_context()
        if self._clients:
            self._demand_of(context)
        return context

    def _demand_of(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(cadata=self._clients)
        except (ssl.SSLError, ValueError):
            raise UnusableCertificate("it holds no certificate in PEM format") from None
        context.verify_mode = ssl.CERT_REQUIRED

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> int | None:
        current = self._current
        if current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = current
        return None


class CertificateFolder:
    """A folder with ``tls.crt`` and ``tls.key``, read again when their content has changed.

    Content is compared, not times: a mounted Secret changes by exchanging a symlink, and the two files
    of a folder written by hand change one after the other. A pair that cannot be used is logged once,
    and the old one stays. One that clients who ask for `name` would refuse is used and logged: perhaps
    they ask for another name.
    """

    def __init__(self, folder: str | os.PathLike[str], serving: ServingCertificate, name: str = "") -> None:
        self.folder = Path(folder)
        self._name = name
        self._serving = serving
        self._seen = b""
        self._complaint = ""
        self._lock = threading.Lock()

    def load(self) -> None:
        """The first reading. Raises UnusableCertificate, whose text names the file and what is wrong."""
        with self._lock:
            self._take(self._read())

    def refresh(self) -> bool:
        """Look again; True if another certificate is in use now. Never raises: problems are logged."""
        with self._lock:
            try:
                changed = self._take(self._read())
            except UnusableCertificate as error:
                # Half-written files are asked about every few seconds: one line is enough.
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.warning(
                        "the new certificate cannot be used, the old one stays in use: %s",
                        error,
                        extra={"folder": str(self.folder)},
                    )
                return False
            self._complaint = ""
        if changed:
            ends = self._serving.expires
            log.info(
                "certificate renewed",
                extra={"folder": str(self.folder), "expires": ends.isoformat() if ends else ""},
            )
        return changed

    def _read(self) -> Pair:
        return Pair(*(_content(self.folder / name) for name in (CERTIFICATE_FILE, KEY_FILE)))

    def _take(self, pair: Pair) -> bool:
        seen = hashlib.sha256(pair.certificate + b"\0" + pair.key).digest()
        if seen == self._seen:
            return False
        try:
            self._serving.use(pair)
        except UnusableCertificate as error:
            raise UnusableCertificate(f"{self.folder / CERTIFICATE_FILE}: {error}") from None
        self._seen = seen
        now = datetime.now(timezone.utc)
        for doubt in doubts(pair.certificate, self._name, now) if self._name else ():
            log.warning(
                "the apiserver may refuse this certificate: %s", doubt, extra={"folder": str(self.folder)}
            )
        return True


class ClientAuthorityFile:
    """The CA of those who may connect, read again when the file has changed. For --client-authority."""

    def __init__(self, path: str | os.PathLike[str], serving: ServingCertificate) -> None:
        self._path = Path(path)
        self._serving = serving
        self._seen: bytes | None = None
        self._complaint = ""

    def load(self) -> None:
        """The first reading. Raises UnusableCertificate, whose text names the file and what is wrong."""
        content = _content(self._path)
        if content == self._seen:
            return
        try:
            self._serving.demand(content)
        except UnusableCertificate as error:
            raise UnusableCertificate(f"{self._path}: {error}") from None
        self._seen = content

    def refresh(self) -> None:
        """Look again. Never raises: a file that is wrong is logged once, the one before stays in force."""
        try:
            self.load()
            self._complaint = ""
        except UnusableCertificate as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("the new client authority cannot be used, the old one stays in use: %s", error)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_FILE)
    except OSError as error:
        raise UnusableCertificate(f"{path}: {error.strerror or error}") from None


def _bare_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, pair: Pair) -> None:
    # `ssl` reads files only; these are in memory, so that a key never lies on a disk and both parts are
    # the ones that were looked at.
    certificate = _in_memory("certificate", pair.certificate)
    try:
        key = _in_memory("key", pair.key)
        try:
            context.load_cert_chain(f"/proc/self/fd/{certificate}", f"/proc/self/fd/{key}", _no_password)
        except ssl.SSLError as error:
            reason = error.reason or words_of(error)
            if reason in MISMATCH:
                raise UnusableCertificate("the key does not belong to the certificate") from None
            raise UnusableCertificate(f"the certificate or its key cannot be used ({reason})") from None
        finally:
            os.close(key)
    finally:
        os.close(certificate)


def _no_password() -> str:
    # Without this OpenSSL would ask for the password of an encrypted key on the terminal.
    raise UnusableCertificate("the key is encrypted; it must be readable without a password")


def _in_memory(name: str, content: bytes) -> int:
    number = os.memfd_create(name)
    try:
        os.write(number, content)
        os.lseek(number, 0, os.SEEK_SET)
    except BaseException:
        os.close(number)
        raise
    return number
