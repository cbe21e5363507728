"""A plain client of the apiserver for tests and stubs, which must not depend on the code under test.

It takes and returns raw dicts, keeps connections, can be used from several threads, and counts what it sends.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
import threading
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.machine import scaled

Object = dict[str, Any]

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class Refused(Exception):
    """The apiserver answered with an error: its HTTP status, and its Status object."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        self.status = status
        self.answer = dict(answer)
        self.reason = str(answer.get("reason", ""))
        self.message = str(answer.get("message", ""))
        super().__init__(f"{status} {self.reason}: {self.message}")


class ApiClient:
    """Requests to one apiserver as one user."""

    def __init__(self, server: str, ca: Path, token: str, agent: str = "test-harness") -> None:
        parts = urllib.parse.urlsplit(server)
        assert parts.hostname is not None
        self._host, self._port = parts.hostname, parts.port or 443
        self._context = ssl.create_default_context(cafile=str(ca))
        self._headers = {"Authorization": f"Bearer {token}", "Accept": JSON, "User-Agent": agent}
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPSConnection] = []
        self.requests: Counter[str] = Counter()
        """How often each HTTP method was sent; a watch counts as WATCH."""
        self.warnings: list[str] = []
        """The texts of the Warning headers of all answers, in order."""

    def get(self, path: str, **query: Any) -> Object:
        return self.request("GET", path, query=query)

    def create(self, path: str, body: Object, **query: Any) -> Object:
        return self.request("POST", path, body, query=query)

    def put(self, path: str, body: Object, **query: Any) -> Object:
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, operations: list[Object], **query: Any) -> Object:
        """An RFC 6902 patch."""
        return self.request("PATCH", path, operations, JSON_PATCH, query)

    def merge(self, path: str, body: Object, **query: Any) -> Object:
        """An RFC 7386 merge patch."""
        return self.request("PATCH", path, body, MERGE_PATCH, query)

    def delete(self, path: str, body: Object | None = None, **query: Any) -> Object:
        return self.request("DELETE", path, body, query=query)

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except Refused as refused:
            if refused.status == 404:
                return False
            raise
        return True

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = JSON,
        query: Mapping[str, Any] | None = None,
    ) -> Object:
        """One request; raises Refused for an error, OSError or HTTPException without an answer."""
        with self._lock:
            self.requests[method] += 1
        status, headers, text = self._send(method, _with_query(path, query), body, content_type)
        for warning in headers.get_all("Warning") or []:
            self.warnings.append(_warning_text(warning))
        answer = _parse(text)
        if status >= 400:
            raise Refused(status, answer)
        return answer

    def text(self, path: str) -> str:
        """The body of an answer that is no JSON: /readyz, /metrics."""
        status, _, text = self._send("GET", path, None, JSON)
        if status >= 400:
            raise Refused(status, {"message": text})
        return text

    @contextmanager
    def watch(self, path: str, **query: Any) -> Iterator[Watch]:
        """An open watch; Watch.close() from another thread ends its iteration."""
        with self._lock:
            self.requests["WATCH"] += 1
        connection = self._new_connection()
        try:
            connection.request("GET", _with_query(path, {"watch": "true", **query}), headers=self._headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise Refused(response.status, _parse(response.read().decode()))
            assert connection.sock is not None
            with response:
                yield Watch(response, connection.sock)
        finally:
            connection.close()

    def close(self) -> None:
        """Close the kept connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send(
        self, method: str, path: str, body: Any, content_type: str
    ) -> tuple[int, http.client.HTTPMessage, str]:
        headers = dict(self._headers)
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        kept = self._kept()
        if kept is not None:
            try:
                return self._exchange(kept, method, path, payload, headers)
            except (OSError, http.client.HTTPException):
                # It may have been closed this moment; only a read is safe to send again.
                if method != "GET":
                    raise
        return self._exchange(self._new_connection(), method, path, payload, headers)

    def _new_connection(self) -> http.client.HTTPSConnection:
        return _Connection(self._host, self._port, self._context)

    def _kept(self) -> http.client.HTTPSConnection | None:
        """An idle connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                return connection
            connection.close()

    def _exchange(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        payload: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, http.client.HTTPMessage, str]:
        try:
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
            text = response.read().decode()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append(connection)
        return response.status, response.headers, text


class _Connection(http.client.HTTPSConnection):
    """Connects a socket that is TLS already.

    `SSLContext.wrap_socket` of a connected one leaks it (CPython 3.11) if the apiserver dies between the two.
    """

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=scaled(60), context=context)
        self._tls = context

    def connect(self) -> None:
        connecting = self._tls.wrap_socket(socket.socket(), server_hostname=self.host)
        try:
            connecting.settimeout(self.timeout)
            connecting.connect((self.host, self.port))
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            connecting.close()
            raise
        self.sock = connecting


class Watch:
    """The events of one watch, as the apiserver sends them, until it or close() ends it."""

    def __init__(self, response: http.client.HTTPResponse, connection: socket.socket) -> None:
        self._response = response
        self._connection = connection
        self._closing = False

    def __iter__(self) -> Iterator[Object]:
        while True:
            try:
                line = self._response.readline()
            except (OSError, ValueError, http.client.HTTPException):
                return
            if self._closing or not line.endswith(b"\n"):
                return  # the end, perhaps in the middle of an event
            event: Object = json.loads(line)
            yield event

    def close(self) -> None:
        """End the iteration, from any thread."""
        # First, because a TLS socket that is shut down hands out what comes as it comes, encrypted.
        self._closing = True
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def _with_query(path: str, query: Mapping[str, Any] | None) -> str:
    return f"{path}?{urllib.parse.urlencode(query)}" if query else path


def _parse(text: str) -> Object:
    try:
        answer = json.loads(text)
    except ValueError:
        return {"message": text}
    return answer if isinstance(answer, dict) else {"message": text}


def _warning_text(header: str) -> str:
    """`299 - "text"` without its code and quotes (RFC 9110 quoted-string)."""
    quoted = header.split(" ", 2)[2]
    return quoted[1:-1].replace('\\"', '"').replace("\\\\", "\\")
