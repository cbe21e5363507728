"""Each verb asks who it is and whether they may; whatever is sent, the answer is JSON without an inside."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
import websocket

from jupyter_ext.server.handlers import PARTS
from jupyter_ext.server.kernel_words import ACTIONS
from tests.jupyter_ext.server.extension_server import API, KUBEFLOW, VERBS, ExtensionServer, check
from tests.jupyter_ext.server.people import HEADER
from tests.support.machine import scaled

VERBS_OF_ONE = [(method, path.format(kernel_id="abc")) for method, path in VERBS]
GETS = [verb for verb in VERBS_OF_ONE if verb[0] == "GET"]
POSTS = [verb for verb in VERBS_OF_ONE if verb[0] != "GET"]
PEOPLE = (
    "--ServerApp.identity_provider_class=tests.jupyter_ext.server.people.Names",
    "--ServerApp.authorizer_class=tests.jupyter_ext.server.people.Readers",
)
FOREIGN = {"Origin": "https://evil.example", "Referer": "https://evil.example/", "Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtensionServer]:
    """One as Kubeflow's images start it."""
    started = ExtensionServer(tmp_path_factory.mktemp("kubeflow"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtensionServer]:
    """One with people who may not do all; see `people`."""
    started = ExtensionServer(tmp_path_factory.mktemp("people"), PEOPLE, {HEADER: "ada"})
    yield started
    started.stop()


def told(server: ExtensionServer, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
    """Status and code of an answer that is an error, or ""."""
    body = b"{}" if method == "POST" else None
    status, text = server.send(method, API + path, body, headers)
    answer = json.loads(text)
    check(path, status, answer)
    return status, answer.get("code", "")


@pytest.mark.parametrize(("method", "path"), [*VERBS_OF_ONE, ("GET", "/x"), ("POST", "/x")])
def test_nobody_may_nothing(people: ExtensionServer, method: str, path: str) -> None:
    headers = {name: value for name, value in people.headers.items() if name != HEADER}
    assert told(people, method, path, headers) == (403, "forbidden")


@pytest.mark.parametrize(("method", "path"), POSTS)
def test_who_may_not_execute_changes_nothing(people: ExtensionServer, method: str, path: str) -> None:
    assert told(people, method, path, people.headers | {HEADER: "reader"}) == (403, "forbidden")
    assert told(people, method, path, people.headers) == (404, "not_found")


@pytest.mark.parametrize(("method", "path"), GETS)
def test_who_may_not_read_sees_nothing(people: ExtensionServer, method: str, path: str) -> None:
    assert told(people, method, path, people.headers | {HEADER: "stranger"}) == (403, "forbidden")


def test_a_page_is_told_whether_it_may_change_something(people: ExtensionServer) -> None:
    assert people.get("/state")["can_change"] is True
    _, text = people.send("GET", f"{API}/state", headers=people.headers | {HEADER: "reader"})
    assert json.loads(text)["can_change"] is False


@pytest.mark.parametrize(("method", "path"), POSTS)
def test_xsrf_alone_stops_a_foreign_page(server: ExtensionServer, method: str, path: str) -> None:
    assert {"--ServerApp.token=", "--ServerApp.allow_origin=*"} <= {*KUBEFLOW}
    assert told(server, method, path, FOREIGN) == (403, "forbidden")
    with_cookie = FOREIGN | {"Cookie": server.headers["Cookie"]}  # as a browser would send it
    assert told(server, method, path, with_cookie) == (403, "forbidden")
    assert told(server, method, path, server.headers) == (404, "not_found")


@pytest.mark.parametrize(("method", "path"), GETS)
def test_a_foreign_page_cannot_read_with_a_visitors_cookies(
    server: ExtensionServer, method: str, path: str
) -> None:
    """The server's own header lets pages of any origin read what needs no cookie, and nothing else."""
    request = urllib.request.Request(
        server.address + API + path, headers=FOREIGN | {"Cookie": server.headers["Cookie"]}, method=method
    )
    with urllib.request.urlopen(request, timeout=scaled(20)) as reply:
        assert reply.headers["Access-Control-Allow-Origin"] == "*"
        assert reply.headers["Access-Control-Allow-Credentials"] is None


def test_nobody_hears_of_events(people: ExtensionServer) -> None:
    address = people.address.replace("http", "ws") + "/api/events/subscribe"
    with closing(websocket.create_connection(address, timeout=scaled(20), header={HEADER: "ada"})) as heard:
        assert heard.connected
    with pytest.raises(websocket.WebSocketBadStatusException) as refused:
        websocket.create_connection(address, timeout=scaled(20))
    assert refused.value.status_code == 403


IDS = [
    "abc",
    "..",
    "%2e%2e%2fabc",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%00",
    "a%0ab",
    "<script>",
    "x" * 500,
    "%ff",
]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_id_of_no_kernel_is_not_found(server: ExtensionServer, action: str) -> None:
    for kernel_id in IDS:
        status, text = server.send("POST", f"{API}/kernels/{kernel_id}/{action}", b"{}")
        answer = json.loads(text)
        check("/x", status, answer)
        # what is no text at all is refused before anybody looks for it
        expected = (400, "wrong_input") if kernel_id == "%ff" else (404, "not_found")
        assert (status, answer["code"]) == expected, kernel_id


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_other_methods_are_told(server: ExtensionServer, method: str) -> None:
    assert told(server, method, "/pool", server.headers) == (405, "wrong_input")


@pytest.mark.timeout(120)
def test_whatever_is_sent_the_answer_is_json_without_an_inside(server: ExtensionServer) -> None:
    chance = random.Random(28)
    letters = "abc019{}[]\":,./%?&=#<>;'`$()\\é½ \t"

    def noise(most: int) -> str:
        return "".join(chance.choices(letters, k=chance.randrange(most)))

    def quoted(text: str) -> str:
        return "".join(
            f"%{byte:02x}" if byte in b" \t#?%\\" or byte > 126 else chr(byte) for byte in text.encode()
        )

    words = ["kernels", *ACTIONS, *PARTS, "..", "", "{}"]
    fields = ["gpus", "partial", "memory_mib", "now", "x"]
    values: list[object] = [1, 0.5, -1, 1e300, True, None, "1; rm -rf ~", [], {}, 10**30, "$(reboot)", "½"]
    for number in range(5000):
        parts = [chance.choice(words) if chance.random() < 0.7 else quoted(noise(12)) for _ in range(3)]
        path = f"{API}/{'/'.join(parts)}" if number % 2 else f"{API}/kernels/{parts[0] or 'x'}/request"
        path += chance.choice(["", "", "?" + quoted(noise(12))])
        sent = {chance.choice(fields): chance.choice(values) for _ in range(chance.randrange(4))}
        body = chance.choice([json.dumps(sent), noise(60), ""]).encode()
        method = chance.choice(["GET", "POST", "POST", "POST"])
        status, text = server.send(method, path, body if method == "POST" else None)
        answer = json.loads(text)
        assert status < 500, (method, path, body, answer)
        assert status == 200 or answer["code"] in ("not_found", "wrong_input"), (path, answer)
        assert b"Traceback" not in text
    assert "Traceback" not in server.log.read_text()
