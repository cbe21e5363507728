"""What anybody in the cluster may post has bounds: bytes of one body and of all, values, depth, memory."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bitfusion_cluster.program import http_service
from bitfusion_cluster.program.http_service import LARGEST_BODY, LARGEST_IN_FLIGHT, MIB
from bitfusion_cluster.webhooks.review_json import MOST_ITEMS
from tests.bitfusion_cluster.certificates.mounted_secret import MountedSecret
from tests.bitfusion_cluster.certificates.pairs import pair
from tests.notebook_controller_patch.admission.live_server import Client, Live, head, serving
from tests.notebook_controller_patch.admission.reviews import AMOUNT, body, notebook, review, statefulset
from tests.notebook_controller_patch.controller_process import ControllerProcess
from tests.notebook_controller_patch.test_controller import away
from tests.support.machine import scaled

NOTEBOOKS, STATEFULSETS = "/admit/notebooks?timeout=5s", "/admit/statefulsets?timeout=5s"
BAD = "bitfusion_admission_bad_requests_total"
JSON = {"Host": "a", "Content-Type": "application/json"}
LARGEST_OBJECT = 3 * MIB  # bytes; what the apiserver takes in one request
HIGHEST_PEAK = 200  # MiB; the container may have 256


def run(live: Live, scenario: Callable[[Client], Any]) -> Any:
    async def main() -> Any:
        async with serving(live):
            client = await live.client()
            try:
                return await asyncio.wait_for(scenario(client), scaled(30))
            finally:
                await client.close()

    return asyncio.run(main())


def large(make: Callable[[], dict[str, Any]], size: int = LARGEST_OBJECT) -> dict[str, Any]:
    """An object that has as many bytes, most of them in environment variables."""
    made = make()
    container = made["spec"]["template"]["spec"]["containers"][0]
    entry = {"name": "SOME_SETTING_000000", "value": "a value of it"}
    length = len(json.dumps(entry, separators=(",", ":"))) + 1
    missing = size - len(json.dumps(made, separators=(",", ":"))) - 100
    container["env"] = [{**entry, "name": f"SOME_SETTING_{number:06}"} for number in range(missing // length)]
    return made


def compact(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("path", "make"),
    [(NOTEBOOKS, lambda: notebook({AMOUNT: "2"})), (STATEFULSETS, lambda: statefulset({AMOUNT: "2"}))],
)
def test_the_largest_update_that_the_apiserver_takes_is_answered(
    live: Live, path: str, make: Callable[[], dict[str, Any]]
) -> None:
    new, old = large(make), large(make)
    posted = compact(review(new, old))
    assert 2 * (LARGEST_OBJECT - 1000) < len(posted) < LARGEST_BODY

    async def scenario(client: Client) -> Any:
        return await client.post(path, posted)

    assert run(live, scenario).response["allowed"] is True


MANY = [
    pytest.param(b'{"a":[' + b"{}," * (MOST_ITEMS // 2) + b"{}]}", id="empty objects"),
    pytest.param(b"[" + b"[]," * (MOST_ITEMS // 2) + b"[]]", id="empty lists"),
    pytest.param(b"[" + b"1.5," * MOST_ITEMS + b"1]", id="numbers"),
    pytest.param(
        b"{" + b",".join(b'"%06x":1' % number for number in range(MOST_ITEMS + 1)) + b"}", id="keys"
    ),
]


@pytest.mark.parametrize("posted", MANY)
def test_a_body_of_too_many_values_is_refused_before_it_is_read(live: Live, posted: bytes) -> None:
    assert len(posted) < LARGEST_BODY

    async def scenario(client: Client) -> Any:
        return await client.post(NOTEBOOKS, posted), await client.post(NOTEBOOKS, review(notebook()))

    bad, good = run(live, scenario)
    assert (bad.status, bad.text) == (400, f"the body has more than {MOST_ITEMS} items\n")
    assert good.response["allowed"] is True
    assert live.value(BAD, status="400") == 1


def nested(depth: int) -> Any:
    made: Any = {}
    for _ in range(depth):
        made = {"resources": made}
    return made


@pytest.mark.parametrize("depth", [100, 400, 700, 900, 960, 5000])
@pytest.mark.parametrize("path", [NOTEBOOKS, STATEFULSETS])
def test_nesting_of_any_depth_is_answered_or_refused_in_words(
    live: Live, caplog: pytest.LogCaptureFixture, path: str, depth: int
) -> None:
    """Not as a bug of this project: nothing in the log, and no object let through with a warning."""
    make = notebook if path == NOTEBOOKS else statefulset
    text = body(review(make({AMOUNT: "2"}, None), make({AMOUNT: "2"})))
    marked = text.replace(b'"containers":', b'"deep": 0, "containers":', 1)
    opened, closed = b'{"resources":' * depth, b"}" * depth
    posted = marked.replace(b'"deep": 0', b'"deep": ' + opened + b"{}" + closed)
    assert posted != text

    async def scenario(client: Client) -> Any:
        return await client.post(path, posted)

    answer = run(live, scenario)
    if answer.status == 200:
        assert answer.response["allowed"] is True
        assert not any("failed" in warning for warning in answer.response.get("warnings", ()))
    else:
        assert (answer.status, answer.text) == (400, "the body is nested too deeply\n")
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    if depth <= 100:
        assert answer.status == 200
    # how deep Python reads, and how deep it recurses, are its own; 3.13 reads deeper than 3.11


def test_all_bodies_together_have_a_bound_and_room_comes_back(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_service, "REQUEST_SECONDS", scaled(3))
    size = 6 * MIB
    unfinished = head("POST", NOTEBOOKS, {**JSON, "Content-Length": str(size + 1)}) + b"x" * size

    async def scenario(client: Client) -> Any:
        first, second, third = [await live.client() for _ in range(3)]
        await first.write(unfinished)
        await second.write(unfinished)
        await third.write(unfinished + b"x")
        refused = await third.read()
        small = await client.post(NOTEBOOKS, review(notebook()))
        dropped = [await each.read() for each in (first, second)]
        cut = [await each.ended() for each in (first, second)]
        await third.write(unfinished + b"x")
        later = await third.read()
        for each in (first, second, third):
            await each.close()
        return refused, small, dropped, cut, later

    refused, small, dropped, cut, later = run(live, scenario)
    assert (refused.status, refused.text) == (
        429,
        f"the requests in flight have more than {LARGEST_IN_FLIGHT // MIB} MiB; try again later\n",
    )
    assert small.response["allowed"] is True, "there is room for the apiserver's"
    assert [each.status for each in dropped] == [408, 408]
    assert cut == [True, True]
    assert (later.status, later.text.partition(":")[0]) == (400, "the body is not JSON")
    assert live.value(BAD, status="429") == 1
    assert live.value("bitfusion_admission_in_flight") == 0


def test_the_memory_limit_holds_while_anybody_posts_what_he_likes(tmp_path: Path) -> None:
    """One body of `{}` took 275 MiB, 60 unfinished ones 248 MiB; the limit is 256."""
    mount = MountedSecret(tmp_path / "tls", pair("ECDSA"))
    with ControllerProcess(
        tmp_path,
        [f"--kubeconfig={away(tmp_path)}", "--namespace=kubeflow", f"--certificate-folder={mount.folder}"],
    ) as controller:
        before = _peak(controller)
        for posted in _attacks():
            assert _post(controller.port, posted) in (200, 400)
        half = head("POST", NOTEBOOKS, {**JSON, "Content-Length": str(LARGEST_BODY)}) + b"x" * (6 * MIB)
        _all_at_once(controller.port, half, 60)
        whole = [_request(posted) for posted in _attacks()]
        _all_at_once(controller.port, whole[0], 12)
        _all_at_once(controller.port, whole[-1], 12)
        peak = _peak(controller)
        status, _ = controller.ask("/healthz")
    print(f"\nmemory of a replica: {before:.0f} MiB before, at most {peak:.0f} MiB under attack")
    assert status == 200
    assert peak < HIGHEST_PEAK


def _attacks() -> list[bytes]:
    """Bodies with as many bytes, values or depth as are let in, and some with more."""
    room = LARGEST_BODY - 1000
    shell = compact(review({"metadata": {}}, kind="StatefulSet")).replace(
        b'"object":{', b'"object":{"x":@,', 1
    )
    half = (MOST_ITEMS - 100) // 2
    fillings = [
        b"[" + b"{}," * half + b"{}]",
        b"[" + b'{"a":1},' * half + b"{}]",
        b"[" + b"1.5," * (MOST_ITEMS - 100) + b"1]",
        b"{" + b",".join(b'"%08x":"%02x"' % (n, n % 99) for n in range(room // 16)) + b"}",
        '"😀'.encode() + b"x" * (room - 200) + b'"',
        b"[" + b"{}," * (room // 3 - 100) + b"{}]",
        b"[" * (room // 2),
        # what the apiserver may send
        compact(large(lambda: notebook({AMOUNT: "2"}), 2 * LARGEST_OBJECT)),
    ]
    return [shell.replace(b"@", filling, 1) for filling in fillings]


def _request(posted: bytes) -> bytes:
    return head("POST", STATEFULSETS, {**JSON, "Content-Length": str(len(posted))}) + posted


def _peak(controller: ControllerProcess) -> float:
    """MiB that the process has had at most."""
    assert controller.port
    status = Path(f"/proc/{controller.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def _connect(port: int) -> ssl.SSLSocket:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return trusting.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=scaled(20)))


def _post(port: int, posted: bytes) -> int:
    """The status of the answer."""
    with _connect(port) as connection:
        connection.sendall(_request(posted))
        return int(connection.recv(100).split()[1])


def _all_at_once(port: int, data: bytes, times: int) -> None:
    """As many connections send it and wait for an answer, or their end."""

    def send() -> None:
        try:
            with _connect(port) as connection:
                connection.sendall(data)
                while connection.recv(1 << 16):
                    break
        except OSError:
            pass  # cut, which is one of the things to try

    threads = [threading.Thread(target=send) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(scaled(30))
        assert not thread.is_alive()
