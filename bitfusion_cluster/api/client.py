"""Requests to the Kubernetes API by path: get, create, replace, patch, delete, watch; raw dicts, thread-safe.

A thin adapter around the official client's transport. Its typed models are not used: they reject fields that
are newer than the client, and cost 63 times as much. The transport never retries by itself
(`retries = False`): with its default a read time limit of 2 s took 8 s over four connections, and a 429
slept inside the call. Callers decide when to ask again.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, load_incluster_config, load_kube_config

from bitfusion_client.errors import WrongSetting
from bitfusion_client.one_line import shown_value
from bitfusion_cluster.api.errors import (
    AnswerTooLarge,
    NoAnswer,
    cause_of,
    error_of_status,
)
from bitfusion_cluster.api.own_account import owner_references
from bitfusion_cluster.api.stream import Stream
from bitfusion_cluster.program.program import CannotStart

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

Query = Mapping[str, "str | int | bool"]
Timeout = tuple[float, float]  # seconds: to connect, and between two pieces of the answer

TIMEOUT: Timeout = (3.0, 10.0)
KEPT_CONNECTIONS = 32  # idle ones that are kept: admission's look-ups, the workers, the Lease
LONGEST_ANSWER_S = 60.0  # a whole answer, however slowly its pieces arrive
CHUNK = 1 << 16  # bytes read at once
LONGEST_ERROR_BODY = 1 << 16  # characters of an error's body that are looked at
USER_AGENT = "kubeflow-bitfusion"
JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class KubernetesApi:
    """Requests by path, answers as dicts. All methods may be called from any thread.

    Every method raises NoAnswer or ApiError; a `timeout` is (seconds to connect, seconds between two pieces
    of the answer).

    Args:
        connect: Makes a client with credentials read afresh; called again when the server says 401.
        on_request: Called with method and path before each request is sent; for tests and benchmarks that
            count them.
    """

    def __init__(
        self, connect: Callable[[], ApiClient], on_request: Callable[[str, str], None] | None = None
    ) -> None:
        self._connect = connect
        self._on_request = on_request
        self._client = connect()
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls, kubeconfig: str | None = None, on_request: Callable[[str, str], None] | None = None
    ) -> Self:
        """From a kubeconfig's path; without one, the pod's ServiceAccount, else the usual kubeconfig.

        Called once, when the controller starts. Raises WrongSetting when nothing usable is found.
        """
        if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return cls(lambda: new_client(load_incluster_config, "the pod's ServiceAccount"), on_request)
        source = kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"

        def read(configuration: Configuration) -> None:
            if kubeconfig and os.pathsep not in kubeconfig:
                os.stat(os.path.expanduser(kubeconfig))  # the loader would not say that there is no such file
            load_kube_config(  # type: ignore[no-untyped-call] # annotated in part only
                config_file=os.path.expanduser(kubeconfig) if kubeconfig else None,
                client_configuration=configuration,
            )

        return cls(lambda: new_client(read, source), on_request)

    @property
    def server(self) -> str:
        """Where the API server is, as ``https://host:port``."""
        return str(self._client.configuration.host)

    def owner_references(self, namespace: str) -> list[dict[str, Any]]:
        """Of what this program makes in its own namespace: see `own_account`."""
        return owner_references(_token(self._client) or "", namespace)

    def get(
        self, path: str, query: Query | None = None, timeout: Timeout = TIMEOUT, largest: int | None = None
    ) -> dict[str, Any]:
        """Read one object or one page of a list. AnswerTooLarge beyond `largest` bytes."""
        return self._answer_to(_Request("GET", path, query, timeout=timeout), largest)

    def get_text(self, path: str, accept: str, within: float, largest: int) -> bytes:
        """Read one object as it was sent, in the form that `accept` names, for callers who cannot wait.

        NoAnswer when it has not arrived after about `within` seconds, AnswerTooLarge beyond `largest` bytes.
        """
        request = _Request("GET", path, timeout=(within, within), accept=accept)
        return _read(self._send(request), largest, within)

    def create(
        self, path: str, body: Mapping[str, object], timeout: Timeout = TIMEOUT, dry_run: bool = False
    ) -> dict[str, Any]:
        """POST to a collection. Conflict when the name is taken. A dry run is admitted and not stored."""
        query = {"dryRun": "All"} if dry_run else None
        return self._answer_to(_Request("POST", path, query, body, JSON, timeout))

    def patch(
        self, path: str, operations: Sequence[Mapping[str, object]], timeout: Timeout = TIMEOUT
    ) -> dict[str, Any]:
        """A JSON patch (RFC 6902). Conflict when a `test` in it fails or a path is missing."""
        # the client turns anything but a list into a strategic merge
        return self._answer_to(_Request("PATCH", path, None, list(operations), JSON_PATCH, timeout))

    def merge(self, path: str, body: Mapping[str, object], timeout: Timeout = TIMEOUT) -> dict[str, Any]:
        """A JSON merge patch (RFC 7386); with `metadata.resourceVersion` in it, Conflict if that is old."""
        return self._answer_to(_Request("PATCH", path, None, body, MERGE_PATCH, timeout))

    def replace(
        self, path: str, body: Mapping[str, object], timeout: Timeout = TIMEOUT, dry_run: bool = False
    ) -> dict[str, Any]:
        """PUT a whole object; with `metadata.resourceVersion` in it, Conflict if that is old."""
        query = {"dryRun": "All"} if dry_run else None
        return self._answer_to(_Request("PUT", path, query, body, JSON, timeout))

    def delete(
        self, path: str, body: Mapping[str, object] | None = None, timeout: Timeout = TIMEOUT
    ) -> dict[str, Any]:
        """Delete one object. `body`: DeleteOptions, for preconditions. Conflict when they do not hold."""
        return self._answer_to(_Request("DELETE", path, None, body, JSON, timeout))

    def stream(
        self, path: str, query: Query | None, read_timeout: float, timeout: Timeout = TIMEOUT
    ) -> Stream:
        """Begin a watch. `timeout` is for the beginning of its answer, `read_timeout` (s) for the rest."""
        return Stream(self._send(_Request("GET", path, query, timeout=timeout)), read_timeout)

    def close(self) -> None:
        """Close the kept connections. Requests of other threads go on; later ones connect anew."""
        self._client.rest_client.close()

    def _answer_to(self, request: _Request, largest: int | None = None) -> dict[str, Any]:
        data = _parse(_read(self._send(request), largest))
        if not isinstance(data, dict):
            raise NoAnswer(answered="the answer is not a JSON object, or was cut off")
        return data

    def _send(self, request: _Request) -> urllib3.BaseHTTPResponse:
        client = self._client
        response = self._send_with(client, request)
        if response.status == 401:
            renewed = self._renewed(client)
            if renewed is not None:
                response.drain_conn()
                response = self._send_with(renewed, request)
        if response.status < 300:
            return response
        seconds = _seconds(response.headers.get("Retry-After"))
        text = _read(response)[:LONGEST_ERROR_BODY]
        raise error_of_status(response.status, _parse(text), seconds, response.reason or "")

    def _send_with(self, client: ApiClient, request: _Request) -> urllib3.BaseHTTPResponse:
        if self._on_request is not None:
            self._on_request(request.method, request.path)
        return request.send(client)

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
    """A client that never retries, with what `read` puts into its configuration.

    Called by `KubernetesApi.load`, and by tests whose `read` sets any host and token. Raises WrongSetting,
    which names `source`, if `read` fails.
    """
    configuration = Configuration()
    configuration.retries = False  # urllib3's word for never
    configuration.connection_pool_maxsize = KEPT_CONNECTIONS
    try:
        read(configuration)
    except Exception as error:  # the loader raises whatever the file's shape happens to break
        allowed = f"it has no credentials that can be used ({cause_of(error)})"
        raise WrongSetting("kubeconfig", source, allowed) from error
    client = ApiClient(configuration)
    client.user_agent = USER_AGENT
    return client


@dataclass(frozen=True, slots=True)
class _Request:
    """One request, which may be sent twice: with another client if the first one's token is refused."""

    method: str
    path: str
    query: Query | None = None
    body: object = None
    content_type: str = ""
    timeout: Timeout = TIMEOUT
    accept: str = JSON

    def send(self, client: ApiClient) -> urllib3.BaseHTTPResponse:
        """The response of any status, its body not read yet. Raises NoAnswer."""
        headers = {"Accept": self.accept}
        if self.content_type:
            headers["Content-Type"] = self.content_type
        try:
            arguments = client.param_serialize(
                self.method,
                self.path,
                query_params=list((self.query or {}).items()),
                header_params=headers,
                body=self.body,
                auth_settings=["BearerToken"],
            )
            answer = client.call_api(*arguments, _request_timeout=self.timeout)
        except (ConfigException, OSError, urllib3.exceptions.HTTPError) as error:
            # ConfigException: the token's file is being replaced just now
            raise NoAnswer(asked=f"{self.method} {self.path}", answered=cause_of(error)) from error
        except Exception as error:
            if getattr(error, "status", None) == 0:  # how the client wraps TLS errors
                raise NoAnswer(asked=f"{self.method} {self.path}", answered=cause_of(error)) from error
            raise
        response: urllib3.BaseHTTPResponse = answer.response
        return response


def _read(
    response: urllib3.BaseHTTPResponse, largest: int | None = None, longest_s: float | None = None
) -> bytes:
    longest_s = LONGEST_ANSWER_S if longest_s is None else longest_s
    deadline = time.monotonic() + longest_s
    pieces = []
    size = 0
    try:
        for piece in response.stream(CHUNK):
            pieces.append(piece)
            size += len(piece)
            if largest is not None and size > largest:
                response.close()
                raise AnswerTooLarge(answered=f"the answer has more than {largest} bytes")
            if time.monotonic() > deadline:
                response.close()
                raise NoAnswer(answered=f"the answer was not complete after {longest_s:g} s")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        response.close()
        raise NoAnswer(answered=cause_of(error)) from error
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


def connect(kubeconfig: str | None) -> KubernetesApi:
    """The API client of a process. Raises WrongSetting; CannotStart where no cluster is found."""
    try:
        return KubernetesApi.load(kubeconfig)
    except WrongSetting as error:
        if kubeconfig is not None:
            allowed = f"{error.allowed}; name another file, or leave the setting out"
            raise WrongSetting(error.name, error.value, allowed) from None
        raise CannotStart(
            f"No credentials for a cluster were found: {shown_value(error.value)}: {error.allowed}",
            "run it in a pod, or name a file with credentials with --kubeconfig.",
        ) from None
