"""A real Jupyter server with real Bitfusion kernels: what a page sees, and what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import websocket
from jsonschema import ValidationError
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from jupyter_ext.server.kernel_words import ACTIONS
from tests.jupyter.client import Client, channels_of
from tests.jupyter.conftest import bitfusion_kernel_command
from tests.jupyter.embedded_pool import CLIENT, Pool
from tests.jupyter_ext.server.extension_server import KUBEFLOW, ExtensionServer, check
from tests.support import kernel_state_schema
from tests.support.machine import scaled
from tests.support.waiting import wait_until

Json = dict[str, Any]

COUNTING = """#!{python} -IS
import os, sys
if sys.argv[1:2] == ["list_gpus"]:
    os.write(os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND), b"x")
os.execv({client!r}, [{client!r}, *sys.argv[1:]])
"""


class Live:
    """The server, its pool, its clients."""

    def __init__(self, folder: Path) -> None:
        self.pool = Pool(folder / "pool")
        self.pool.write(gpus=1)
        self.log = folder / "looks"
        client = folder / "bitfusion"
        client.write_text(COUNTING.format(python=sys.executable, log=str(self.log), client=CLIENT))
        client.chmod(0o755)
        prefix = folder / "prefix"
        install = ["install", "--prefix", str(prefix), "--name", "bitfusion"]
        subprocess.run(
            [*bitfusion_kernel_command(), *install], check=True, capture_output=True, timeout=scaled(60)
        )
        (folder / "work").mkdir()
        self.specs = prefix / "share" / "jupyter" / "kernels"
        environment = self.pool.environment | {"JUPYTER_PATH": str(self.specs.parent)}
        options = [*KUBEFLOW, f"--BitfusionServer.client={client}"]
        self.server = ExtensionServer(folder, options, environment=environment)
        self.runtime = folder / "runtime"
        self.clients: list[Client] = []

    @property
    def looks(self) -> int:
        """How often the client has been asked for the pool by the server's extension, or by kernels."""
        return self.log.stat().st_size if self.log.exists() else 0

    def start(self, name: str = "bitfusion", path: str = "work/x.ipynb") -> str:
        """Jupyter's id of the kernel of a new notebook."""
        session = {"path": path, "name": "", "type": "notebook", "kernel": {"name": name}}
        return str(self.server.ask("POST", "/api/sessions", session)["kernel"]["id"])

    def connect(self, kernel_id: str) -> Client:
        """A client of it."""
        client = Client(channels_of(str(self.runtime / f"kernel-{kernel_id}.json")))
        self.clients.append(client)
        client.channels.wait_for_ready(timeout=scaled(30))
        return client

    def kernel(self, kernel_id: str) -> Json:
        """What the server tells of a kernel; empty if nothing."""
        found = [each for each in self.server.get("/kernels")["kernels"] if each["id"] == kernel_id]
        return dict(found[0]) if found else {}

    def until(self, kernel_id: str, state: str) -> Json:
        """What the server tells of a kernel, once it is in this state."""
        wait_until(lambda: self.kernel(kernel_id).get("state") == state, lambda: self.kernel(kernel_id), 15)
        return self.kernel(kernel_id)

    def post(self, kernel_id: str, action: str, **body: Any) -> str:
        """The message of an action that succeeds."""
        status, answer = self.server.api("POST", f"/kernels/{kernel_id}/{action}", body)
        assert status == 200, answer
        return str(answer["message"])

    def end_kernels(self) -> None:
        """End all kernels, and the leases that they have."""
        while self.clients:
            self.clients.pop().close()
        for session in self.server.ask("GET", "/api/sessions"):
            self.server.ask("DELETE", f"/api/sessions/{session['id']}")
        self.pool.wait_until_free(10)

    def stop(self) -> None:
        self.server.stop()


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One for all tests of this file."""
    live = Live(tmp_path_factory.mktemp("live"))
    yield live
    live.stop()


@pytest.fixture
def live(started: Live) -> Iterator[Live]:
    """The same, without the kernels of the test when that is over."""
    yield started
    started.end_kernels()


@pytest.fixture
def bus(live: Live) -> Iterator[websocket.WebSocket]:
    """The server's event bus, as a page subscribes to it."""
    address = live.server.address.replace("http", "ws") + "/api/events/subscribe"
    header = [f"Cookie: {live.server.headers['Cookie']}"]
    with closing(websocket.create_connection(address, timeout=scaled(15), header=header)) as connection:
        yield connection


def all_heard(bus: websocket.WebSocket, until: Callable[[Json], bool]) -> list[Json]:
    """All that comes, up to what is waited for."""
    told: list[Json] = []
    while not told or not until(told[-1]):
        told.append(json.loads(bus.recv()))
    return told


def heard(bus: websocket.WebSocket, **fields: Any) -> Json:
    """The next event with these fields."""
    while True:
        told: Json = json.loads(bus.recv())
        state = told.get("state") or {}
        if all(told.get(name) == value or state.get(name) == value for name, value in fields.items()):
            return told


def test_a_notebook_from_its_size_over_the_queue_to_the_release(
    live: Live, bus: websocket.WebSocket, tmp_path: Path
) -> None:
    kernel_id = live.start()
    client = live.connect(kernel_id)
    told = live.until(kernel_id, "none")
    assert (told["path"], told["title"]) == ("work/x.ipynb", "x.ipynb")
    # a size
    assert "asks for 1 GPU × 50 %" in live.post(kernel_id, "request", gpus=1, partial=0.5)
    wait_until(lambda: live.kernel(kernel_id)["request"].get("partial") == 0.5, "the size in its state", 5)
    status, refused = live.server.api("POST", f"/kernels/{kernel_id}/request", {"gpus": 9})
    assert (status, refused["code"]) == (409, "refused")
    assert "No server of the pool has enough" in refused["message"] or "9 GPUs" in refused["message"]
    status, wrong = live.server.api("POST", f"/kernels/{kernel_id}/request", {"gpus": 0})
    assert (status, wrong["code"]) == (400, "wrong_input")
    # it waits
    with live.pool.held("other.ipynb"):
        cell = client.send("print('ran')")
        waits = live.until(kernel_id, "waiting")
        wait_until(lambda: (live.kernel(kernel_id)["queue"] or {}).get("position") == 1, "its position", 10)
        kernel_state_schema.check(
            {name: waits[name] for name in waits if name not in ("id", "path", "title", "waited_for_by")}
        )
        assert [each["id"] for each in live.server.get("/queue")["queue"]] == [kernel_id]
        assert live.server.get("/leases")["leases"] == []
        wait_until(lambda: len(live.server.get("/pool")["waiting"]) == 1, "a look that shows it", 10)
        pool = live.server.get("/pool")
        ((gpu,),) = [server["gpus"] for server in pool["servers"]]
        assert "other.ipynb" in gpu["holders"][0]["text"]
        assert gpu["holders"][0]["mine"]
        assert pool["simulated"]
        half = next(size for size in live.server.get("/sizes")["sizes"] if size["label"] == "½ GPU")
        assert (half["free_now"], half["note"]) == (0, "would wait: 1 before you")
        # and no longer
        assert "no longer waits for 1 GPU × 50 %" in live.post(kernel_id, "cancel")
        client.finish(cell, 10)
        assert cell.status == "error"
        live.until(kernel_id, "none")
    # it computes
    assert client.run("print('ran')", 30).stream() == "ran\n"
    holds = live.until(kernel_id, "idle")
    assert holds["lease"]["simulated"]
    assert [each["id"] for each in live.server.get("/leases")["leases"]] == [kernel_id]
    # it gives back while a cell runs: when that is over
    is_asked = tmp_path / "asked"
    cell = client.send(f"import os, time\nwhile not os.path.exists({str(is_asked)!r}): time.sleep(0.05)")
    live.until(kernel_id, "running")
    assert "given back" in live.post(kernel_id, "release")
    is_asked.touch()
    client.finish(cell, 20)
    live.until(kernel_id, "none")
    assert heard(bus, what="kernel", kernel_id=kernel_id, state="waiting")["state"]["title"] == "x.ipynb"
    assert "no longer holds a GPU" in heard(bus, what="notice", kind="lease_ended")["message"]
    live.end_kernels()


def test_an_idle_holder_is_told_who_waits_for_it(live: Live, bus: websocket.WebSocket) -> None:
    kernel_id = live.start()
    client = live.connect(kernel_id)
    client.run("1", 30)
    live.until(kernel_id, "idle")

    def told_of_nobody() -> bool:
        live.server.get("/pool")  # which answers with what is known where a look takes long
        return bool(live.kernel(kernel_id)["waited_for_by"] == [])

    wait_until(told_of_nobody, lambda: live.kernel(kernel_id), 20)
    with live.pool.asked_before("other.ipynb", 1):
        live.post(kernel_id, "keep")  # after which the pool is looked at soon
        wait_until(lambda: live.server.get("/pool")["waiting"], "a look that shows it", 20)
        (waiter,) = live.kernel(kernel_id)["waited_for_by"]
        assert "other.ipynb (1 GPU" in waiter
        message = heard(bus, what="notice", kind="someone_waits", kernel_id=kernel_id)["message"]
        assert message == f"x.ipynb is idle and holds 1 GPU, for which others are waiting: {waiter}."
        client.run("import time; time.sleep(0.3)", 30)
        live.until(kernel_id, "idle")
    told = all_heard(bus, lambda each: (each.get("state") or {}).get("waited_for_by") == [])
    assert [each["kind"] for each in told if each["what"] == "notice"] == [], "not again after each cell"
    live.end_kernels()


def test_a_kernel_of_others_is_none_and_is_told_so(live: Live) -> None:
    kernel_id = live.start("python3", "work/plain.ipynb")
    assert live.server.get("/kernels")["kernels"] == []
    status, answer = live.server.api("POST", f"/kernels/{kernel_id}/acquire", {})
    assert (status, answer["code"]) == (409, "not_bitfusion")
    live.end_kernels()


def test_a_kernel_of_another_server_cannot_be_touched(live: Live) -> None:
    """Neither by its id nor by its file, though that lies beside those of this server's kernels."""
    other = str(uuid.uuid4())
    specs = KernelSpecManager(kernel_dirs=[str(live.specs)])
    manager = KernelManager(
        kernel_name="bitfusion",
        kernel_spec_manager=specs,
        connection_file=str(live.runtime / f"kernel-{other}.json"),
    )
    manager.start_kernel(env=os.environ | live.pool.environment | {"BITFUSION_ACQUIRE": "start"})
    try:
        wait_until(live.pool.leases, "the lease of the other server's kernel", 20)
        for action in ACTIONS:
            for name in (other, f"kernel-{other}", f"..%2fkernel-{other}", f"kernel-{other}.json"):
                status, answer = live.server.api("POST", f"/kernels/{name}/{action}", {})
                assert (status, answer["code"]) == (404, "not_found"), (action, name)
        assert live.server.get("/leases")["leases"] == []
        assert len(live.pool.leases()) == 1
    finally:
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    live.end_kernels()


def test_a_restart_is_followed_and_a_shutdown_is_told(live: Live, bus: websocket.WebSocket) -> None:
    kernel_id = live.start(path="work/again.ipynb")
    live.until(kernel_id, "none")
    live.server.ask("POST", f"/api/kernels/{kernel_id}/restart")
    wait_until(lambda: live.kernel(kernel_id).get("title") == "again.ipynb", "it after the restart", 15)
    live.end_kernels()
    assert heard(bus, what="kernel", kernel_id=kernel_id, state=None)["state"] is None


def test_ten_pages_cost_the_pool_what_one_costs(live: Live) -> None:
    live.server.get("/state")
    before = live.looks
    for _ in range(30):
        live.server.get("/state")
    assert live.looks <= before + 1  # a look that was due


def test_the_answers_are_really_checked() -> None:
    with pytest.raises(ValidationError):
        check("/pool", 200, {})
