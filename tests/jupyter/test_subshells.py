"""Subshells, as JupyterLab's consoles and widgets use them, beside `%bitfusion` cells."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jupyter.client import Client
from tests.jupyter.conftest import ALL, FIRST_CELL, OURS, Launch
from tests.jupyter.embedded_pool import Pool
from tests.support.machine import scaled


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
