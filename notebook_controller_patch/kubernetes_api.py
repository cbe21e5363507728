"""The Kubernetes API as raw dicts: a thin, thread-safe adapter around the official client's transport.

Typed models are not used: they reject fields that are newer than the client, and cost 63 times as much.
The transport never retries by itself (`retries = False`): with its default a read time limit of 2 s took 8 s
over four connections, and a 429 slept inside the call. Callers decide when to ask again.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from bitfusion_client.errors import BitfusionError, WrongSetting

Query = Mapping[str, "str | int | bool"]
Timeout = tuple[float, float]  # seconds: to connect, and between two pieces of the answer

TIMEOUT: Timeout = (3.0, 10.0)
LONGEST_ANSWER_S = 60.0  # a whole answer, however slowly its pieces drip
PIECE = 1 << 16  # bytes
LONGEST_ERROR_BODY = 1 << 16  # characters of an error's body that are looked at
USER_AGENT = "kubeflow-bitfusion"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class ApiFailure(BitfusionError):
    """A request to the Kubernetes API did not succeed; ApiError and NoAnswer tell the two ways apart."""


class NoAnswer(ApiFailure):
    """The API server could not be reached, or its answer did not come (whole) within the time limit."""

    headline = "The Kubernetes API did not answer."
    next_step = "it is asked again; if it stays so, look at the API server and the network to it."


class ApiError(ApiFailure):
    """The API server answered with an error.

    `status` is HTTP's, `reason` and `message` are those of the Status object (empty if there was none),
    `retry_after` the seconds it asks to wait, None if it does not say.
    """

    headline = "The Kubernetes API refused a request."

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(answered=f"{status} {reason}: {message}" if message else f"{status} {reason}")
        self.args = (status, reason, message, retry_after)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """401, also after the token was read again."""


class Forbidden(ApiError):
    """403: a missing role, a quota, or an admission that refused."""


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409: it exists already, or somebody else was faster; 422 when a JSON patch's `test` failed."""


class Gone(ApiError):
    """410: a resourceVersion or continue token is too old."""


class Invalid(ApiError):
    """422: the object is not valid."""


class TooManyRequests(ApiError):
    """429."""


class ServerTrouble(ApiError):
    """5xx."""


_CLASSES: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_of_status(
    status: int, body: object, retry_after: float | None = None, reason: str = ""
) -> ApiError:
    """The error class for an HTTP status and a Status object (parsed; anything else is ignored).

    Also called with the Status objects inside a watch.
    """
    data = body if isinstance(body, dict) else {}
    details = data.get("details")
    if retry_after is None and isinstance(details, dict):
        seconds = details.get("retryAfterSeconds")
        retry_after = float(seconds) if isinstance(seconds, (int, float)) else None
    reason = str(data.get("reason") or reason)
    message = str(data.get("message") or "")
    kind = _CLASSES.get(status, ServerTrouble if status >= 500 else ApiError)
    # the apiserver's answer to a failed `test`: "testing path /spec/replicas value failed: test failed"
    if status == 422 and "test failed" in message:
        kind = Conflict
    return kind(status, reason, message, retry_after)


class Stream:
    """The pieces of an answer that does not end by itself: a watch. A context manager; `close` ends it."""

    def __init__(self, response: urllib3.BaseHTTPResponse, read_timeout: float) -> None:
        self._response = response
        self._closed = False
        self._lock = threading.Lock()
        connection = response.connection
        self._socket: socket.socket | None = getattr(connection, "sock", None)
        self.set_read_timeout(read_timeout)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            self._socket = None
            self._response.close()

    def set_read_timeout(self, seconds: float) -> None:
        """From the next read on, silence of that many seconds is NoAnswer. For the reading thread only."""
        if self._socket is not None:
            self._socket.settimeout(seconds)

    def lines(self) -> Iterator[bytes]:
        """Whole lines as they arrive, without their end; ends when the server or `close` ends the answer.

        What comes after the last line end is dropped: it is half of something. Raises NoAnswer when the
        connection breaks or stays silent for longer than the read time limit.
        """
        pieces: list[bytes] = []
        for piece in self._pieces():
            start = 0
            while (end := piece.find(b"\n", start)) >= 0:
                pieces.append(piece[start:end])
                line = b"".join(pieces)
                pieces.clear()
                start = end + 1
                if line.strip():
                    yield line
            if start < len(piece):
                pieces.append(piece[start:])

    def _pieces(self) -> Iterator[bytes]:
        read: Callable[[int], bytes] = self._response.read1
        while not self._closed:
            try:
                piece = read(PIECE)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                if self._closed:
                    return
                raise NoAnswer(answered=_words(error)) from error
            if not piece:
                return
            yield piece

    def close(self) -> None:
        """End the answer at once, from any thread: a read that waits returns."""
        with self._lock:
            self._closed = True
            if self._socket is None:
                return
            try:
                # of the plain socket: the TLS object stays usable for the thread that reads from it
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except (OSError, TypeError):
                pass  # gone already, or TLS within a proxy's TLS: the read time limit ends that one


class KubernetesApi:
    """Requests by path, answers as dicts. All methods may be called from any thread.

    `connect` makes a client with credentials read afresh; it is called again when the server says 401.
    """

    def __init__(self, connect: Callable[[], ApiClient]) -> None:
        self._connect = connect
        self._client = connect()
        self._lock = threading.Lock()

    @classmethod
    def load(cls, kubeconfig: str | None = None) -> KubernetesApi:
        """From a kubeconfig's path; without one, the pod's ServiceAccount, else the usual kubeconfig.

        Called once at start. Raises WrongSetting in words when nothing usable is found.
        """
        if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return cls(lambda: new_client(load_incluster_config, "the pod's ServiceAccount"))
        source = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"

        def read(configuration: Configuration) -> None:
            load_kube_config(  # type: ignore[no-untyped-call] # annotated in part only
                config_file=os.path.expanduser(kubeconfig) if kubeconfig else None,
                client_configuration=configuration,
            )

        return cls(lambda: new_client(read, source))

    @property
    def server(self) -> str:
        """Where the API server is, as ``https://host:port``."""
        return str(self._client.configuration.host)

    def get(self, path: str, query: Query | None = None, timeout: Timeout = TIMEOUT) -> dict[str, Any]:
        """Read one object or one page of a list."""
        return self._ask("GET", path, query, None, "", timeout)

    def create(
        self, path: str, body: Mapping[str, object], query: Query | None = None, timeout: Timeout = TIMEOUT
    ) -> dict[str, Any]:
        """POST to a collection. Conflict when the name is taken."""
        return self._ask("POST", path, query, body, "application/json", timeout)

    def patch(
        self,
        path: str,
        operations: list[dict[str, Any]],
        query: Query | None = None,
        timeout: Timeout = TIMEOUT,
    ) -> dict[str, Any]:
        """A JSON patch (RFC 6902). Conflict when one of its `test` operations fails."""
        # the client turns anything but a list into a strategic merge
        return self._ask("PATCH", path, query, list(operations), JSON_PATCH, timeout)

    def merge(
        self, path: str, body: Mapping[str, object], query: Query | None = None, timeout: Timeout = TIMEOUT
    ) -> dict[str, Any]:
        """A JSON merge patch (RFC 7386); with `metadata.resourceVersion` in it, Conflict if that is old."""
        return self._ask("PATCH", path, query, body, MERGE_PATCH, timeout)

    def delete(
        self, path: str, body: Mapping[str, object] | None = None, timeout: Timeout = TIMEOUT
    ) -> dict[str, Any]:
        """Delete one object. `body`: DeleteOptions, for preconditions. Conflict when they do not hold."""
        return self._ask("DELETE", path, None, body, "application/json", timeout)

    def stream(
        self, path: str, query: Query | None, read_timeout: float, timeout: Timeout = TIMEOUT
    ) -> Stream:
        """Begin an answer without end. `timeout` is for its beginning, `read_timeout` (s) for the rest."""
        response = self._send("GET", path, query, None, "", timeout)
        return Stream(response, read_timeout)

    def close(self) -> None:
        """Close the kept connections. Requests of other threads go on; later ones connect anew."""
        self._client.rest_client.close()

    def _ask(
        self, method: str, path: str, query: Query | None, body: object, content_type: str, timeout: Timeout
    ) -> dict[str, Any]:
        response = self._send(method, path, query, body, content_type, timeout)
        data = _parse(_read(response))
        if not isinstance(data, dict):
            raise NoAnswer(answered="the answer is no JSON object, or was cut off")
        return data

    def _send(
        self, method: str, path: str, query: Query | None, body: object, content_type: str, timeout: Timeout
    ) -> urllib3.BaseHTTPResponse:
        client = self._client
        response = _request(client, method, path, query, body, content_type, timeout)
        if response.status == 401:
            renewed = self._renewed(client)
            if renewed is not None:
                response.drain_conn()
                response = _request(renewed, method, path, query, body, content_type, timeout)
        if response.status < 300:
            return response
        seconds = _seconds(response.headers.get("Retry-After"))
        text = _read(response)[:LONGEST_ERROR_BODY]
        raise error_of_status(response.status, _parse(text), seconds, response.reason or "")

    def _renewed(self, refused: ApiClient) -> ApiClient | None:
        """A client with other credentials than `refused`, None if there are none (yet)."""
        with self._lock:
            if self._client is not refused:
                return self._client
            try:
                fresh = self._connect()
            except WrongSetting:
                return None
            if _token(fresh) == _token(refused):
                return None
            self._client = fresh
            return fresh


def new_client(read: Callable[[Configuration], None], source: str) -> ApiClient:
    """A client that never retries, with what `read` puts into its configuration (WrongSetting if it can't).

    Also for tests: `read` may set any host and token.
    """
    configuration = Configuration()
    configuration.retries = False  # urllib3's word for never
    configuration.connection_pool_maxsize = 16
    try:
        read(configuration)
    except Exception as error:  # the loader raises whatever the file's shape happens to break
        allowed = f"no way into the cluster could be read from it ({_words(error)})"
        raise WrongSetting("kubeconfig", source, allowed) from error
    client = ApiClient(configuration)
    client.user_agent = USER_AGENT
    return client


def _request(
    client: ApiClient,
    method: str,
    path: str,
    query: Query | None,
    body: object,
    content_type: str,
    timeout: Timeout,
) -> urllib3.BaseHTTPResponse:
    headers = {"Accept": "application/json"}
    if content_type:
        headers["Content-Type"] = content_type
    try:
        arguments = client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = client.call_api(*arguments, _request_timeout=timeout)
    except (ConfigException, OSError, urllib3.exceptions.HTTPError) as error:
        # ConfigException: the token's file is being replaced just now
        raise NoAnswer(asked=f"{method} {path}", answered=_words(error)) from error
    except Exception as error:
        if getattr(error, "status", None) == 0:  # how the client wraps TLS errors
            raise NoAnswer(asked=f"{method} {path}", answered=_words(error)) from error
        raise
    response: urllib3.BaseHTTPResponse = answer.response
    return response


def _read(response: urllib3.BaseHTTPResponse) -> bytes:
    deadline = time.monotonic() + LONGEST_ANSWER_S
    pieces = []
    try:
        for piece in response.stream(PIECE):
            pieces.append(piece)
            if time.monotonic() > deadline:
                response.close()
                raise NoAnswer(answered=f"the answer was not complete after {LONGEST_ANSWER_S:.0f} s")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        response.close()
        raise NoAnswer(answered=_words(error)) from error
    return b"".join(pieces)


def _parse(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _seconds(header: str | None) -> float | None:
    # the other form, a date, is never sent by an apiserver
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def _token(client: ApiClient) -> str | None:
    token: str | None = client.configuration.api_key.get("BearerToken")
    return token


def _words(error: BaseException) -> str:
    """The innermost reason: urllib3 wraps several times."""
    text = str(error) or type(error).__name__
    return f"{type(error).__name__}: {text}"
