"""The API as `bitfusion run` asks it, at a server whose answers are given: what is an error, what passes."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bitfusion_pods.api.account import Account
from bitfusion_pods.api.client import PAGE, Api, ApiError, ApiUnreachable, pods
from bitfusion_pods.command.asking import seen_gpus
from tests.support.certificates import certified

WAY = pods("team-a", "digits-0")


class Server(ThreadingHTTPServer):
    """Answers each request with the next of `answers`, a status and an object, and the last for ever."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        # without keyUsage, as that of microk8s
        authority = certified("kubernetes", authority=True)
        shown = certified("apiserver", ["127.0.0.1"], signed_by=authority)
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*shown.write(folder))
        self.socket = context.wrap_socket(self.socket, server_side=True)
        (folder / "ca.crt").write_bytes(authority.certificate)
        for name in ("token", "namespace"):
            (folder / name).write_text("x")
        self.account = Account("127.0.0.1", self.server_port, str(folder))
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """As any other."""
        self.server.asked.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answers = self.server.answers
        status, answer = answers.pop(0) if len(answers) > 1 else answers[0]
        data = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815  # the names that http.server calls

    def log_message(self, *_: object) -> None:
        """Nowhere."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    made = Api(server.account)
    yield made
    made.close()


def refusal(status: int, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"kind": "Status", "reason": "Whatever", "message": message, "code": status}


@pytest.mark.parametrize(
    ("status", "read", "written"),
    [
        (429, ApiUnreachable, ApiError),
        (500, ApiUnreachable, ApiError),
        (503, ApiUnreachable, ApiError),
        (403, ApiError, ApiError),
        (410, ApiError, ApiError),
    ],
)
def test_a_server_that_cannot_answer_now_is_away_to_all_but_who_writes(
    server: Server, api: Api, status: int, read: type[Exception], written: type[Exception]
) -> None:
    server.answers = [refusal(status, "storage is (re)initializing")]
    for ask in (lambda: api.get(WAY), lambda: api.delete(WAY), lambda: list(api.watch(WAY, "1"))):
        with pytest.raises(read, match="storage is"):
            ask()
    for write in (api.create, api.merge):
        with pytest.raises(written, match="storage is"):
            write(WAY, {})


@pytest.mark.parametrize(("code", "kind"), [(410, ApiError), (429, ApiUnreachable), (500, ApiUnreachable)])
def test_so_is_one_whose_watch_ends_with_such_an_event(
    server: Server, api: Api, code: int, kind: type[Exception]
) -> None:
    server.answers = [(200, {"type": "ERROR", "object": refusal(code, "etcd")[1]})]
    with pytest.raises(kind, match="etcd"):
        list(api.watch(WAY, "1"))


def test_what_is_not_there_is_told_from_what_may_not_be_read(server: Server, api: Api) -> None:
    server.answers = [refusal(404, "not found"), refusal(404, "not found"), refusal(403, "forbidden")]
    assert api.find(WAY) is None
    assert api.find_readable(WAY) is None
    assert api.find_readable(WAY) is None
    with pytest.raises(ApiError, match="forbidden"):
        api.find(WAY)


def test_an_authority_with_few_extensions_is_trusted_by_every_python(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ssl.create_default_context

    def as_since_3_13(cafile: str) -> ssl.SSLContext:
        context = made(cafile=cafile)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", as_since_3_13)
    server.answers = [(200, {"kind": "Pod"})]
    assert api.get(WAY) == {"kind": "Pod"}


def page(names: list[str], rest: str) -> tuple[int, dict[str, Any]]:
    offers = {"allocatable": {"nvidia.com/gpu": "2"}}
    nodes = [{"metadata": {"name": name}, "status": offers} for name in names]
    return 200, {"metadata": {"continue": rest}, "items": nodes}


def test_all_nodes_of_a_large_cluster_are_seen(server: Server, api: Api) -> None:
    server.answers = [page(["a", "b"], "t/1"), page([], "t2"), page(["c"], "")]
    nodes, _, sees_nodes = seen_gpus(api, (), ["nvidia.com/gpu"])
    assert [(node.name, node.gpus) for node in nodes] == [("a", 2), ("b", 2), ("c", 2)]
    assert sees_nodes
    begin = f"/api/v1/nodes?limit={PAGE}&continue="
    assert server.asked == [begin, f"{begin}t%2F1", f"{begin}t2"]


def test_where_nodes_may_not_be_seen_this_is_known(server: Server, api: Api) -> None:
    server.answers = [refusal(403, "forbidden")]
    assert seen_gpus(api, (), ["nvidia.com/gpu"]) == ([], [], False)
