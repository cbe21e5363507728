"""Requests to the Kubernetes API over one kept connection, and one watch at a time over another."""

from __future__ import annotations

import http.client
import json
import select
import ssl
import time
from urllib.parse import quote, urlencode

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import mappings, metadata_of, text
from bitfusion_client.version import VERSION
from bitfusion_pods.api.account import unusable
from bitfusion_pods.api.chunks import Chunks, NoChunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from bitfusion_pods.api.account import Account

PATIENCE = 10.0
"""Seconds for one answer."""
WATCH_FOR = 240
"""Seconds after which the server ends a watch, and it is begun anew."""
LARGEST = 32 << 20
"""Bytes of one answer or event: an object of Kubernetes has 1.5 MB at most, a list is asked for in part."""
PAGE = 200
"""Objects of one answer to a list: a node with its images' names has some 50 KB."""
LONGEST_MESSAGE = 4000
_WRITES = ("POST", "PATCH")
_PATCH = "application/merge-patch+json"
_STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)
"""What a kept connection says that the other side has closed meanwhile: nothing was done."""


class ApiError(Exception):
    """The API has refused.

    Attributes:
        status: HTTP's.
        reason: Kubernetes' word, such as ``Forbidden``.
        message: Kubernetes' sentence.
    """

    def __init__(self, status: int, reason: str = "", message: str = "") -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.status} {self.reason}: {self.message}"


class ApiUnreachable(Exception):
    """The API has not answered, or not now; the text says why. What was asked for may have been done.

    Not now is 429 or 5xx, such as one that has just been started (``storage is (re)initializing``, since
    Kubernetes 1.31). Of what is written it is an ApiError: a webhook may not answer, which `refusals` reads.
    """


def path(*words: str, **query: str | int) -> str:
    """A path of the API from its parts, each quoted; `query` behind it."""
    way = "/".join(quote(word, safe="") for word in words)
    return f"/{way}?{urlencode(query)}" if query else f"/{way}"


def pods(namespace: str, *name: str, **query: str | int) -> str:
    """The path of the pods of a namespace, or of one of them."""
    return path("api", "v1", "namespaces", namespace, "pods", *name, **query)


class Api:
    """That of one account. Not to be used by two threads."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._context: ssl.SSLContext | None = None
        self._kept: http.client.HTTPSConnection | None = None

    def get(self, way: str) -> dict[str, Any]:
        """An object, or a list of them. Raises ApiError, ApiUnreachable, ClusterUnusable."""
        return self._ask("GET", way)

    def find(self, way: str) -> dict[str, Any] | None:
        """As `get`; None if there is none."""
        return self._unless((404,), way)

    def find_readable(self, way: str) -> dict[str, Any] | None:
        """As `get`; None if there is none, or this account may not read it."""
        return self._unless((403, 404), way)

    def _unless(self, refused: tuple[int, ...], way: str) -> dict[str, Any] | None:
        try:
            return self.get(way)
        except ApiError as error:
            if error.status in refused:
                return None
            raise

    def items(self, way: str) -> Iterator[Mapping[str, Any]]:
        """Those of a list, however long, asked for in pages. Raises as `get`."""
        mark, rest = "&" if "?" in way else "?", ""
        while True:
            page = self.get(f"{way}{mark}{urlencode({'limit': PAGE, 'continue': rest})}")
            yield from mappings(page.get("items"))
            rest = text(metadata_of(page).get("continue"))
            if not rest:
                return

    def create(self, way: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What was made. Raises as `get`; after ApiUnreachable it may have been made."""
        return self._ask("POST", way, body)

    def merge(self, way: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object with these values (a merge patch). Raises as `get`."""
        return self._ask("PATCH", way, body, _PATCH)

    def delete(self, way: str, body: Mapping[str, Any] | None = None) -> None:
        """Delete it; nothing if it is gone already. Raises as `get`."""
        try:
            self._ask("DELETE", way, body)
        except ApiError as error:
            if error.status != 404:
                raise

    def watch(self, way: str, version: str) -> Iterator[dict[str, Any] | None]:
        """Each event ``{type, object}`` from this version on; None whenever a second has passed without one.

        It ends when the server ends it, which is in order. Whoever does not read it to its end closes it.

        Raises:
            ApiError: Also for an event that is one, such as 410 for a version that is too old.
            ApiUnreachable: The connection is lost.
        """
        connection = self._connect(PATIENCE)
        try:
            mark = "&" if "?" in way else "?"
            limits = urlencode({"watch": "1", "resourceVersion": version, "timeoutSeconds": WATCH_FOR})
            try:
                response = self._send(connection, "GET", f"{way}{mark}{limits}", None, "")
                if response.status != 200:
                    raise _no(response.status, response.read(LARGEST))
                yield from _events(response, connection.sock)
            except (OSError, http.client.HTTPException, NoChunks) as error:
                raise ApiUnreachable(_words(error)) from None
        finally:
            connection.close()

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _ask(
        self, method: str, way: str, body: Mapping[str, Any] | None = None, kind: str = "application/json"
    ) -> dict[str, Any]:
        for again in (True, False):
            fresh = self._kept is None
            connection = self._kept = self._kept or self._connect(PATIENCE)
            try:
                response = self._send(connection, method, way, body, kind)
                answer = response.read(LARGEST)
                if response.will_close or not response.isclosed():
                    self.close()
                break
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if fresh or not again or not isinstance(error, _STALE):
                    raise ApiUnreachable(_words(error)) from None
        if response.status >= 300:
            raise (_refusal if method in _WRITES else _no)(response.status, answer)
        return _object(answer)

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        way: str,
        body: Mapping[str, Any] | None,
        kind: str,
    ) -> http.client.HTTPResponse:
        headers = {
            "Authorization": f"Bearer {self._account.token()}",
            "Accept": "application/json",
            "User-Agent": f"bitfusion/{VERSION}",
        }
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), kind
        connection.request(method, way, data, headers)
        return connection.getresponse()

    def _connect(self, patience: float) -> http.client.HTTPSConnection:
        if self._context is None:
            try:
                self._context = ssl.create_default_context(cafile=self._account.authority)
            except OSError as error:
                raise unusable(self._account.authority, _words(error)) from None
            # on from Python 3.13: authorities of EKS and microk8s lack the extensions that it asks for
            self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        account = self._account
        return http.client.HTTPSConnection(
            account.host, account.port, timeout=patience, context=self._context
        )


def _events(response: http.client.HTTPResponse, sock: ssl.SSLSocket) -> Iterator[dict[str, Any] | None]:
    chunks, waiting, told = Chunks(), b"", time.monotonic()
    heard = told
    for data in _pieces(response, sock):
        now = time.monotonic()
        heard = now if data else heard
        if now - heard > WATCH_FOR + PATIENCE:
            raise ApiUnreachable("it no longer answers")
        *lines, waiting = (waiting + (chunks.feed(data) if response.chunked else data)).split(b"\n")
        if len(waiting) > LARGEST:
            raise ApiUnreachable("an event has no end")
        for line in filter(None, lines):
            event = _object(line)
            if event.get("type") == "ERROR":
                raise _no(0, json.dumps(event.get("object")).encode())
            if event.get("type") != "BOOKMARK":
                yield event
        if chunks.over:
            return
        if now - told >= 1.0:
            told = now
            yield None


def _pieces(response: http.client.HTTPResponse, sock: ssl.SSLSocket) -> Iterator[bytes]:
    """What comes, as it comes; empty after a second without anything."""
    sock.setblocking(False)
    while True:
        try:
            data = response.fp.read1(1 << 16)
        except ssl.SSLWantReadError:
            select.select([sock], [], [], 1.0)
            yield b""
            continue
        if not data:
            return
        yield data


def _no(status: int, answer: bytes) -> ApiError | ApiUnreachable:
    """To what only reads, watches or deletes."""
    refusal = _refusal(status, answer)
    if refusal.status == 429 or refusal.status >= 500:
        why = refusal.message or refusal.reason or "no reason given"
        return ApiUnreachable(f"it is busy ({refusal.status}): {why}")
    return refusal


def _refusal(status: int, answer: bytes) -> ApiError:
    try:
        said = _object(answer)
    except ApiUnreachable:  # a proxy's page
        said = {}
    texts = {name: str(said.get(name) or "") for name in ("reason", "message")}
    code = said.get("code")
    return ApiError(
        status or (code if isinstance(code, int) else 500),
        texts["reason"],
        texts["message"][:LONGEST_MESSAGE],
    )


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ApiUnreachable("the answer is not from a Kubernetes API: it is not an object")
    return value


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not signed by the cluster ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return f"no answer within {PATIENCE:.0f} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
