"""An API server on loopback that can be told to misbehave: real sockets, real HTTP (or HTTPS), no Kubernetes.

It stores objects, pages lists, keeps watches, knows PUT, JSON patches, merge patches, preconditions and 410
after a compaction. `misbehave` puts a fault in front of the requests that match. Every request is noted, so
that a test can say how many there may be.
"""

from __future__ import annotations

import copy
import json
import queue
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonpatch
from kubernetes.client import Configuration

from bitfusion_cluster.api.client import KubernetesApi, new_client
from tests.bitfusion_cluster.faults import Fault, bookmark, status_object
from tests.support import apiserver_answers as answers
from tests.support.machine import scaled

Object = dict[str, Any]
LIST, WATCH, GET, POST, PUT, PATCH, DELETE = "list", "watch", "get", "post", "put", "patch", "delete"


@dataclass(frozen=True)
class Request:
    """One request that arrived: what it was, when (monotonic), its path and query."""

    verb: str
    path: str
    query: dict[str, str]
    at: float
    authorization: str


@dataclass
class _Planned:
    fault: Fault
    verb: str | None
    path: str
    left: int


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Server
    body: Any = None
    """Of the request that is served now, for faults that serve it later."""

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ValueError):
            pass  # the client went away, or a fault closed the connection

    def finish(self) -> None:
        try:
            super().finish()
        except (OSError, ValueError):
            pass

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        self.body = json.loads(body) if body else None
        self.server.api.serve(self, self.command, parts.path, query, self.body)

    def answer(self, code: int, body: object, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        for name, value in (headers or {}).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_piece(self, piece: bytes) -> None:
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    api: FakeApi
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is not None:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except OSError:
                return
        super().finish_request(request, client_address)
        if self.context is not None:
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # broken connections are what this server is for


@dataclass
class _Collection:
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    log: list[tuple[int, str, Object]] = field(default_factory=list)
    compacted: int = 0
    watchers: list[queue.Queue[bytes | None]] = field(default_factory=list)


class FakeApi:
    """The server and its store. Collections are named by their cluster-wide path, e.g. `/api/v1/events`."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.requests: list[Request] = []
        self.written: list[Request] = []  # those that changed an object
        self.ending = threading.Event()
        self.bookmark_every_s: float | None = None
        self.token: str | None = None
        self._collections: dict[str, _Collection] = {}
        self._planned: list[_Planned] = []
        self._lock = threading.RLock()
        self._version = 100
        self._uids = 0
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.api = self
        self.port = int(self._server.server_address[1])
        scheme = "http"
        if certificate is not None:
            self._server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._server.context.load_cert_chain(*certificate)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.ending.set()
        self.end_watches()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(scaled(5))

    def client(self, read: Callable[[Configuration], None] | None = None) -> KubernetesApi:
        """The code's own client for this server; `read` adds to its configuration each time it is read."""

        def configure(configuration: Configuration) -> None:
            configuration.host = self.url
            configuration.verify_ssl = False
            if read is not None:
                read(configuration)

        return KubernetesApi(lambda: new_client(configure, "the test's server"))

    # what a test says

    def misbehave(self, fault: Fault, verb: str | None = None, path: str = "", times: int = 1) -> None:
        """Put `fault` in front of the next `times` requests of that verb whose path begins with `path`."""
        with self._lock:
            self._planned.append(_Planned(fault, verb, path, times))

    def behave(self) -> None:
        with self._lock:
            self._planned.clear()

    def put(self, collection: str, data: Object) -> Object:
        """Add or replace an object, as somebody else's write."""
        with self._lock:
            return self._store(collection, copy.deepcopy(data))

    def remove(self, collection: str, namespace: str, name: str) -> None:
        with self._lock:
            self._remove(self._of(collection), (namespace, name))

    def object(self, collection: str, namespace: str, name: str) -> Object | None:
        with self._lock:
            found = self._of(collection).objects.get((namespace, name))
            return copy.deepcopy(found)

    def objects(self, collection: str) -> list[Object]:
        with self._lock:
            return copy.deepcopy(list(self._of(collection).objects.values()))

    def compact(self) -> None:
        """Forget the past: watches that ask for it get 410."""
        with self._lock:
            for collection in self._collections.values():
                collection.compacted = self._version
                collection.log.clear()

    def end_watches(self) -> None:
        with self._lock:
            for collection in self._collections.values():
                for watcher in collection.watchers:
                    watcher.put(None)

    def watching(self, collection: str) -> int:
        with self._lock:
            return len(self._of(collection).watchers)

    @property
    def version(self) -> int:
        return self._version

    def count(self, *verbs: str, path: str = "") -> int:
        """How many requests came, of these verbs (all if none is given)."""
        with self._lock:
            return sum(
                1
                for request in self.requests
                if (not verbs or request.verb in verbs) and request.path.startswith(path)
            )

    # how a request is served

    def serve(
        self,
        handler: Handler,
        method: str,
        path: str,
        query: dict[str, str],
        body: Any,
        arrived: bool = True,
    ) -> None:
        """`arrived=False`: a fault goes on as if it were none; the request was noted before."""
        collection, key = _parse(path)
        verb = method.lower()
        if verb == GET and key[1] == "":
            verb = WATCH if query.get("watch") == "true" else LIST
        given = handler.headers.get("Authorization") or ""
        request = Request(verb, path, query, time.monotonic(), given)
        with self._lock:
            if arrived:
                self.requests.append(request)
            fault = self._fault(verb, path) if arrived else None
        if fault is not None:
            fault(handler)
            return
        if self.token is not None and given.partition(" ")[2] != self.token:
            handler.answer(401, status_object(401, "Unauthorized", "Unauthorized"))
            return
        if verb == WATCH:
            self._watch(handler, collection, query)
            return
        try:
            with self._lock:
                before = self._version
                code, answer = self._act(verb, collection, key, query, body, handler.headers)
                if self._version != before:
                    self.written.append(request)
        except Exception as error:
            handler.answer(500, status_object(500, "InternalError", repr(error)))
            return
        handler.answer(code, answer)

    def _fault(self, verb: str, path: str) -> Fault | None:
        for planned in self._planned:
            if planned.verb in (None, verb) and path.startswith(planned.path) and planned.left:
                planned.left -= 1
                return planned.fault
        return None

    def _act(
        self, verb: str, name: str, key: tuple[str, str], query: dict[str, str], body: Any, headers: Any
    ) -> tuple[int, Object]:
        collection = self._of(name)
        if verb == LIST:
            return self._list(collection, key[0], query)
        if verb == POST:
            key = (key[0], body["metadata"]["name"])
            if key in collection.objects:
                return 409, answers.already_exists(_named(name, key[1]))
            body.setdefault("metadata", {})["namespace"] = key[0]
            return 201, self._store(name, body)
        found = collection.objects.get(key)
        if found is None:
            return 404, answers.not_found(_named(name, key[1]))
        if verb == GET:
            return 200, found
        if verb == DELETE:
            for part, value in ((body or {}).get("preconditions") or {}).items():
                held = found["metadata"].get(part)
                if held != value:
                    refused = answers.uid_differs if part == "uid" else answers.version_differs
                    return 409, refused(_named(name, key[1]), value, held)
            self._remove(collection, key)
            return 200, status_object(200)
        if verb == PUT:
            return self._put(name, found, body, query.get("dryRun") == "All")
        return self._patch(name, found, body, headers.get("Content-Type"))

    def _put(self, name: str, found: Object, body: Any, dry_run: bool) -> tuple[int, Object]:
        metadata = body["metadata"]
        version = metadata.setdefault("resourceVersion", found["metadata"]["resourceVersion"])
        if version != found["metadata"]["resourceVersion"]:
            return 409, answers.modified(_named(name, metadata["name"]))
        if body.setdefault("type", found.get("type")) != found.get("type"):
            return 422, answers.type_differs(_named(name, metadata["name"]), body["type"])
        body["metadata"] = {**metadata, **{k: found["metadata"].get(k) for k in ("namespace", "uid")}}
        return 200, body if dry_run else self._store(name, body)

    def _patch(self, name: str, found: Object, body: Any, kind: str) -> tuple[int, Object]:
        if kind == "application/merge-patch+json":
            version = body.get("metadata", {}).get("resourceVersion")
            if version is not None and version != found["metadata"]["resourceVersion"]:
                return 409, answers.modified(_named(name, found["metadata"]["name"]))
            patched = _merge(copy.deepcopy(found), body)
        else:
            assert kind == "application/json-patch+json", kind
            try:
                patched = jsonpatch.JsonPatch(body).apply(copy.deepcopy(found))
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                return 422, answers.patch_not_applied()
        if patched == found:
            return 200, found
        return 200, self._store(name, patched)

    def _list(self, collection: _Collection, namespace: str, query: dict[str, str]) -> tuple[int, Object]:
        keys = [key for key in sorted(collection.objects) if not namespace or key[0] == namespace]
        start, version = 0, self._version
        if "continue" in query:
            at, _, seen = query["continue"].partition(":")
            start, version = int(at), int(seen)
            if version < collection.compacted:
                return 410, status_object(410, "Expired", "The provided continue parameter is too old")
        size = int(query.get("limit") or 0) or len(keys)
        end = start + size
        metadata: Object = {"resourceVersion": str(version)}
        if end < len(keys):
            metadata["continue"] = f"{end}:{version}"
        items = [collection.objects[key] for key in keys[start:end]]
        return 200, {"kind": "List", "metadata": metadata, "items": items}

    def _watch(self, handler: Handler, name: str, query: dict[str, str]) -> None:
        collection = self._of(name)
        events: queue.Queue[bytes | None] = queue.Queue()
        with self._lock:
            since = int(query.get("resourceVersion") or 0)
            if since < collection.compacted:
                handler.answer(410, status_object(410, "Expired", "too old resource version"))
                return
            for version, kind, data in collection.log:
                if version > since:
                    events.put(_line(kind, data))
            collection.watchers.append(events)
        deadline = time.monotonic() + float(query["timeoutSeconds"])
        try:
            handler.begin_stream()
            while (left := deadline - time.monotonic()) > 0 and not self.ending.is_set():
                try:
                    line = events.get(timeout=min(left, self.bookmark_every_s or left))
                except queue.Empty:
                    if self.bookmark_every_s:
                        handler.send_piece(bookmark(self._version))
                    continue
                if line is None:
                    break
                handler.send_piece(line)
            handler.end_stream()
        finally:
            with self._lock:
                collection.watchers.remove(events)

    def _of(self, name: str) -> _Collection:
        with self._lock:
            return self._collections.setdefault(name, _Collection())

    def _store(self, name: str, data: Object) -> Object:
        collection = self._of(name)
        self._version += 1
        metadata = data["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        before = collection.objects.get(key)
        if before is not None:
            metadata["uid"] = before["metadata"]["uid"]
        elif "uid" not in metadata:
            self._uids += 1
            metadata["uid"] = f"uid-{self._uids}"
        metadata["resourceVersion"] = str(self._version)
        collection.objects[key] = data
        self._tell(collection, "MODIFIED" if before else "ADDED", copy.deepcopy(data))
        return data

    def _remove(self, collection: _Collection, key: tuple[str, str]) -> None:
        self._version += 1
        data = collection.objects.pop(key)
        data["metadata"]["resourceVersion"] = str(self._version)
        self._tell(collection, "DELETED", data)

    def _tell(self, collection: _Collection, kind: str, data: Object) -> None:
        collection.log.append((self._version, kind, data))
        for watcher in collection.watchers:
            watcher.put(_line(kind, data))


def _line(kind: str, data: Object) -> bytes:
    return (json.dumps({"type": kind, "object": data}) + "\n").encode()


def _merge(target: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    result = target if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), value)
    return result


def _parse(path: str) -> tuple[str, tuple[str, str]]:
    """The collection's cluster-wide path; namespace and name, empty where none is named."""
    if path == "/version":
        return path, ("", "")
    parts = path.strip("/").split("/")
    size = 2 if parts[0] == "api" else 3
    base, rest = parts[:size], parts[size:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    return "/" + "/".join([*base, rest[0]]), (namespace, rest[1] if len(rest) > 1 else "")


def _named(collection: str, name: str) -> answers.Named:
    """How answers name an object of a collection, ``/apis/apps/v1/statefulsets``."""
    parts = collection.strip("/").split("/")
    kind = {"statefulsets": "StatefulSet", "pods": "Pod", "notebooks": "Notebook"}.get(parts[-1], parts[-1])
    return answers.Named("" if parts[0] == "api" else parts[1], parts[-1], name, kind)


@contextmanager
def fake_api(certificate: tuple[Path, Path] | None = None) -> Iterator[FakeApi]:
    server = FakeApi(certificate)
    try:
        yield server
    finally:
        server.close()
