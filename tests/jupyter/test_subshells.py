"""Subshells, as JupyterLab's consoles and widgets use them, beside `%bitfusion` cells."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.jupyter.client import Client
from tests.jupyter.conftest import ALL, FIRST_CELL, OURS, Launch, bitfusion_kernel_command
from tests.jupyter.embedded_pool import Pool
from tests.support.machine import scaled

NAMES_THEM_ITSELF = "bitfusion-elsewhere"


def _request(client: Client, kind: str, **content: str) -> dict[str, Any]:
    return client.request(f"{kind}_subshell_request", content, "control")


@pytest.mark.parametrize("name", ALL)
def test_a_subshell_created_before_the_first_cell_is_there_at_once_and_takes_no_gpu(
    launch: Launch, pool: Pool, name: str
) -> None:
    client = launch(name).connect()
    assert _request(client, "list") == {"status": "ok", "subshell_id": []}
    subshells = [_request(client, "create")["subshell_id"] for _ in range(2)]
    assert _request(client, "list")["subshell_id"] == subshells
    if name == FIRST_CELL:
        client.settle(scaled(0.5))
        assert pool.leases() == [], "JupyterLab creates one when a notebook is opened"

    client.run(
        "import threading; go_on = threading.Event(); import threading as t; main = t.current_thread()"
    )
    busy = client.send("go_on.wait(); print('main done')")
    code = "print(t.current_thread() is main)"
    asides = [client.finish(client.send(code, subshell_id=subshell)) for subshell in subshells]
    assert [cell.stream() for cell in asides] == ["False\n"] * 2
    client.finish(client.send("go_on.set()", subshell_id=subshells[0]))
    client.finish_all(busy)

    assert _request(client, "list")["subshell_id"] == subshells
    assert _request(client, "delete", subshell_id=subshells[0]) == {"status": "ok"}
    assert _request(client, "list")["subshell_id"] == subshells[1:]
    assert _request(client, "delete", subshell_id=subshells[0])["status"] == "error"
    assert client.finish(client.send("1 + 1", subshell_id=subshells[1])).result == "2"


@pytest.mark.parametrize("name", [*ALL, pytest.param(NAMES_THEM_ITSELF, id="kernel names them itself")])
def test_all_that_comes_for_a_subshell_bears_the_id_that_its_client_was_given(
    launch: Launch, kernelspecs: Path, name: str
) -> None:
    if name == NAMES_THEM_ITSELF:
        _install_without_extension(kernelspecs)
    client = launch(name).connect()
    subshell = _request(client, "create")["subshell_id"]
    client.run("import comm")
    cell = client.finish(client.send("print('aside')\n1 / 0", subshell_id=subshell))
    assert cell.kinds == ["busy", "execute_input", "stream", "error", "idle"]
    assert cell.reply is not None
    parents = [message["parent_header"] for message in (*cell.messages, cell.reply)]
    assert [parent.get("subshell_id") for parent in parents] == [subshell] * 6
    opened = client.finish(client.send("made = comm.create_comm('no target')", subshell_id=subshell))
    (told,) = opened.of("comm_open")
    assert told["parent_header"]["subshell_id"] == subshell
    assert _request(client, "list")["subshell_id"] == [subshell]
    assert _request(client, "delete", subshell_id=subshell) == {"status": "ok"}
    assert _request(client, "list")["subshell_id"] == []


@pytest.mark.parametrize("name", ALL)
def test_a_client_sees_no_status_of_requests_that_are_not_its_own(launch: Launch, name: str) -> None:
    """JupyterLab shows the newest status, whoever's it is: `idle` in the middle of a cell, for example."""
    client = launch(name).connect()
    for _ in range(3):
        _request(client, "create")
    before = len(client.iopub)
    client.run("print('runs')")
    client.settle(scaled(0.3))
    others = [m for m in client.iopub[before:] if m["parent_header"].get("session") != client.session.session]
    assert [(m["msg_type"], m["content"], m["parent_header"]) for m in others] == []


def _install_without_extension(prefix: Path) -> None:
    """A kernel with subshells that our extension is not loaded into, as one of another language would be."""
    install = [*bitfusion_kernel_command(), "install", "--prefix", str(prefix), "--name", NAMES_THEM_ITSELF]
    subprocess.run(install, check=True, capture_output=True, timeout=scaled(60))
    wrapped = prefix / "share" / "jupyter" / "kernels" / NAMES_THEM_ITSELF / "wrapped_kernel.json"
    wrapped.write_text(json.dumps(json.loads(wrapped.read_text()) | {"language": "elsewhere"}))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", ["comm_msg", "comm_close"])
def test_a_comm_message_for_a_subshell_that_was_deleted_is_over_when_its_client_hears_idle(
    launch: Launch, name: str, kind: str
) -> None:
    client = launch(name).connect()
    subshell = _request(client, "create")["subshell_id"]
    _request(client, "delete", subshell_id=subshell)
    client.header = {"subshell_id": subshell}
    asked = client.ask(kind, {"comm_id": "none", "data": {}})

    def states() -> list[str]:
        told = [m for m in client.messages_for(asked) if m["msg_type"] == "status"]
        return [m["content"]["execution_state"] for m in told]

    client.pump(lambda: states() == ["busy", "idle"], 10, "idle", states)


@pytest.mark.parametrize("name", OURS)
def test_a_cell_in_a_subshell_created_early_asks_for_the_gpu(launch: Launch, name: str) -> None:
    client = launch(name).connect()
    subshell = _request(client, "create")["subshell_id"]
    cell = client.finish(client.send("print('aside')", subshell_id=subshell))
    assert (cell.status, cell.stream()) == ("ok", "aside\n")
    assert client.run("print('main')").stream() == "main\n"


@pytest.mark.parametrize("name", OURS)
def test_a_subshell_created_early_outlives_a_cell_that_got_no_gpu(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("BITFUSION_GPUS", "4")
    client = launch(name).connect()
    subshell = _request(client, "create")["subshell_id"]
    failed = client.finish(client.send("1", subshell_id=subshell))
    assert failed.error["ename"] == "NeverSatisfiable"
    client.run("%bitfusion request -n 1")
    assert client.finish(client.send("1 + 1", subshell_id=subshell)).result == "2"


def test_a_subshell_and_bitfusion_commands_do_not_wait_for_each_other(launch: Launch) -> None:
    client = launch(FIRST_CELL).connect()
    client.run("import threading; go_on = threading.Event()")
    aside = _request(client, "create")["subshell_id"]
    busy = client.send("go_on.wait(); print('main done')")
    behind = client.send("%bitfusion")
    status = client.finish(client.send("%bitfusion", subshell_id=aside), 10)
    assert "running; its GPU is simulated" in status.stream()
    ran = client.finish(client.send("1 + 1", subshell_id=aside), 10)
    assert ran.result == "2"
    client.settle(scaled(0.2))
    assert not busy.done
    assert not behind.messages, "a command keeps its place behind the cell of its own shell"
    client.finish(client.send("go_on.set()", subshell_id=aside), 10)
    client.finish_all(busy, behind)
    assert "running; its GPU is simulated" in behind.stream()
