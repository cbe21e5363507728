"""The state of a real proxy as another process of the user sees it: asked, watched, read from the file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bitfusion_client.kernel_state import proxy_socket, states, watch
from bitfusion_client.kernel_state.proxy_socket import NoKernel
from bitfusion_client.kernel_state.watch import Watch
from tests.kernel.proxy_harness import GRANT, STAMP, ProxyHarness, StartProxy
from tests.support.kernel_state_schema import FILE_SCHEMA, check
from tests.support.machine import scaled
from tests.support.waiting import wait_until

WAIT_THEN_GRANT = f"""
print("{STAMP} Waiting for GPUs: position 1 of 2; held by ada: x.ipynb (1 GPU, <14:03>)", flush=True)
while not os.path.exists({{grant!r}}): time.sleep(0.01)
{GRANT}"""
LIMIT = scaled(10)
MOST_BYTES = 1000
"""Of a state in a cell, where nobody has a long name: each second of a wait sends it."""


def look(harness: ProxyHarness) -> dict[str, Any]:
    """The state now."""
    told = watch.look(str(harness.folder / "connection.json"), os.environ, seconds=LIMIT)
    check(told)
    return told


def file(harness: ProxyHarness) -> dict[str, Any]:
    """What the file tells."""
    told = states.read(str(harness.private_folder / states.FILE_NAME))
    assert told is not None
    check(told, FILE_SCHEMA)
    return told


@contextmanager
def heard(harness: ProxyHarness) -> Iterator[list[str]]:
    """The names of the states that a watcher is told, until the proxy ends or the test does."""
    names: list[str] = []
    over = threading.Event()
    with Watch(os.path.dirname(harness.await_socket())) as watcher:

        def listen() -> None:
            while not watcher.closed and not over.is_set():
                for told in watcher.wait(0.05):
                    check(told)
                    names.append(told["state"])

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            wait_until(lambda: names, "the state as it is")
            yield names
        finally:
            over.set()
            thread.join()


def is_gone(folder: Path) -> bool:
    return not folder.exists()


def test_waiting_starting_running_idle_and_the_end(proxy: StartProxy, tmp_path: Path) -> None:
    grant = tmp_path / "grant"
    harness = proxy(WAIT_THEN_GRANT.format(grant=str(grant)), JPY_SESSION_NAME="/home/ada/x.ipynb")
    harness.reply(harness.send("kernel_info_request"))
    harness.await_socket()
    assert look(harness)["state"] == "none"
    with heard(harness) as names:
        first = harness.cell("import time")
        wait_until(lambda: look(harness)["queue"] is not None, "it waits in the queue")
        waiting = look(harness)
        assert waiting["queue"]["held_by"] == ["ada: x.ipynb (1 GPU, <14:03>)"]
        assert (waiting["state"], waiting["notebook"], waiting["lease"]) == ("waiting", "x.ipynb", None)
        wait_until(lambda: file(harness)["state"] == "waiting", "the file says so")
        grant.touch()
        harness.reply(first)
        wait_until(lambda: look(harness)["state"] == "idle", "idle after its cell")
        idle = look(harness)
        assert idle["lease"]["devices"][0]["memory_mib"] == 16160
        assert waiting["asked_at"] == idle["asked_at"] <= idle["granted_at"] <= idle["idle_since"]
        assert idle["waited_s"] == pytest.approx(idle["granted_at"] - idle["asked_at"], abs=0.01)
        over = tmp_path / "over"
        long = harness.cell(f"import os\nwhile not os.path.exists({str(over)!r}): time.sleep(0.01)")
        wait_until(lambda: file(harness)["state"] == "running", "the file says that a cell runs")
        wait_until(lambda: names[-1] == "running", "a watcher is told it, too")
        assert look(harness)["idle_since"] is None
        over.touch()
        harness.reply(long)
        wait_until(lambda: file(harness)["state"] == "idle", "the file says that none does")
        wait_until(lambda: names[-1] == "idle", "a watcher is told it, too")
        assert file(harness)["idle_since"] > idle["idle_since"]
        harness.reply(harness.send("shutdown_request", on="control", restart=False), on="control")
        harness.process.wait(LIMIT)
    order = [name for place, name in enumerate(names) if names[place - 1 : place] != [name]]
    assert order[0] == "none"
    assert order[-1] == "releasing"
    assert [name for name in order if name not in ("none", "running", "idle")][:2] == ["waiting", "starting"]
    assert order[-3:-1] == ["running", "idle"]
    wait_until(lambda: not harness.private_folder.exists(), "the folder is gone, and the file with it")
    with pytest.raises(NoKernel, match="no Bitfusion kernel of this user runs with it"):
        look(harness)


@pytest.mark.parametrize("switch", ["on", "off", "maybe"])
def test_the_states_are_in_jupyters_log_if_the_setting_says_so(proxy: StartProxy, switch: str) -> None:
    harness = proxy(GRANT, BITFUSION_LOG_STATES=switch)
    asked = harness.reply(harness.cell("1"))
    assert (asked["status"] == "error") is (switch == "maybe")
    if switch == "on":
        wait_until(lambda: '"idle"' in harness.stderr.read_text(), "the log says idle")
    harness.reply(harness.send("shutdown_request", on="control", restart=False), on="control")
    harness.process.wait(LIMIT)
    lines = [json.loads(line) for line in harness.stderr.read_text().splitlines() if line[:1] == "{"]
    assert {line["message"] for line in lines} <= {"kernel state"}
    assert ("idle" in [line["state"] for line in lines]) is (switch == "on")
    assert bool(lines) is (switch == "on")


def test_a_cell_that_asks_shows_text_as_ever_and_the_state_for_programs(proxy: StartProxy) -> None:
    harness = proxy(GRANT)
    cell = harness.cell("%bitfusion")
    text, display = (m for m in harness.until_idle(cell) if m.type in ("stream", "display_data"))
    assert text.content["text"].startswith("Kernel    no GPU; the next cell asks for one\n")
    data = display.content["data"]
    check(data.pop(states.MIME_TYPE))
    assert data == {"text/plain": "", "text/html": ""}
    harness.reply(harness.cell("1"))
    inside = harness.cell("x = 1\n%bitfusion status")
    assert [m.type for m in harness.until_idle(inside) if m.type in ("stream", "display_data")] == ["stream"]


def test_a_cell_that_waits_shows_the_state_and_nothing_of_it_stays(proxy: StartProxy, tmp_path: Path) -> None:
    grant = tmp_path / "grant"
    harness = proxy(WAIT_THEN_GRANT.format(grant=str(grant)))
    cell = harness.cell("1")
    harness.shown(cell, "Position 1 of 2")
    shown = harness.published[-1].content["data"][states.MIME_TYPE]
    check(shown)
    assert shown == look(harness)
    assert shown["queue"]["position"] == 1
    assert len(json.dumps(shown)) < MOST_BYTES
    grant.touch()
    displays = [m.type for m in harness.until_idle(cell) if "display" in m.type or m.type == "clear_output"]
    assert displays[0] == "display_data"
    assert displays[-1] == "clear_output"


def test_the_next_size_is_told_when_it_is_chosen(proxy: StartProxy) -> None:
    harness = proxy(GRANT)
    harness.reply(harness.send("kernel_info_request"))
    with Watch(os.path.dirname(harness.await_socket())) as watcher:
        assert watcher.wait(LIMIT)[0]["request"]["gpus"] == 1
        harness.reply(harness.cell("%bitfusion request -n 3"))
        assert watcher.wait(LIMIT)[0]["request"]["text"] == "3 GPUs"


def test_what_a_word_gives_back_is_releasing_and_then_nothing_is_held(proxy: StartProxy) -> None:
    harness = proxy(GRANT)
    harness.reply(harness.cell("1"))
    with heard(harness) as names:
        wait_until(lambda: names and names[-1] == "idle", "it is held")
        harness.reply(harness.cell("%bitfusion release -y"))
        wait_until(lambda: names[-1] == "none", "nothing is held")
        assert look(harness)["lease"] is None
        harness.reply(harness.cell("1"))
        wait_until(lambda: names[-1] == "idle", lambda: f"it is held again: {names}")


def test_a_restart_is_parked_in_between_and_a_watcher_finds_the_next_proxy(proxy: StartProxy) -> None:
    harness = proxy(GRANT)
    harness.reply(harness.cell("1"))
    told: list[dict[str, Any]] = []
    over = threading.Event()

    def follow() -> None:
        for state in watch.follow(str(harness.folder / "connection.json"), os.environ, seconds=LIMIT):
            told.append(state)
            if over.is_set():
                return

    thread = threading.Thread(target=follow)
    thread.start()
    wait_until(lambda: told and told[-1]["state"] == "idle", "it is idle")
    harness.reply(harness.send("shutdown_request", on="control", restart=True), on="control")
    harness.process.wait(LIMIT)
    wait_until(lambda: file(harness)["state"] == told[-1]["state"] == "parked", "both say that it is kept")
    assert watch.look(str(harness.folder / "connection.json"), os.environ, seconds=LIMIT)["state"] == "parked"
    environ = dict(os.environ, JPY_PARENT_PID=str(os.getpid()), BITFUSION_CLIENT=str(harness.client))
    with subprocess.Popen(harness.argv, env=environ) as second:
        wait_until(lambda: len(told) > 2 and told[-1]["state"] == "idle", "the next one is idle")
        over.set()
        second.terminate()
    thread.join()
    names = [state["state"] for state in told]
    assert "parked" in names
    assert names.index("parked") < len(names) - 1
    since = [state["granted_at"] for state in told if state["state"] == "idle"]
    assert since == pytest.approx([since[0]] * len(since), abs=0.05)  # it is the same lease


def test_a_proxy_that_is_killed_is_parked_until_its_time_is_over(proxy: StartProxy) -> None:
    seen: list[str] = []
    for _ in range(3):  # again where the machine has stood still for all of that time
        harness = proxy(GRANT)
        harness.reply(harness.cell("1"))
        harness.process.kill()
        harness.process.wait(LIMIT)
        while told := states.read(str(harness.private_folder / states.FILE_NAME)):
            seen.append(told["state"])
            time.sleep(0.01)
        wait_until(partial(is_gone, harness.private_folder), "it is given back")
        if "parked" in seen:
            break
    assert "parked" in seen


def test_the_wrapper_is_told_where_the_file_is_and_no_cell(proxy: StartProxy, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    harness = proxy(f"open({str(seen)!r}, 'w').write(os.environ[{states.FILE_VARIABLE!r}])\n{GRANT}")
    said = harness.printed(harness.cell(f"import os; print(os.environ.get({states.FILE_VARIABLE!r}))"))
    assert seen.read_text() == str(harness.private_folder / states.FILE_NAME)
    assert said == "None\n"


def test_a_folder_that_was_removed_is_found_by_name_and_harms_nobody(proxy: StartProxy) -> None:
    harness = proxy(GRANT)
    harness.reply(harness.cell("1"))
    while harness.private_folder.exists():  # the file may just be written
        shutil.rmtree(harness.private_folder, ignore_errors=True)
    assert harness.reply(harness.cell("2"))["status"] == "ok"
    assert look(harness)["state"] in ("running", "idle")
    assert not harness.private_folder.exists()


def test_peers_that_flood_or_never_read_delay_no_cell(proxy: StartProxy) -> None:
    harness = proxy(GRANT)
    harness.reply(harness.cell("1"))
    path = harness.await_socket()
    peers = []
    for question in [watch.CHANGES] * 20 + [b"{" + b" " * 1_000_000, b'{"sta', b"\n", b"[" * 70_000]:
        peer = proxy_socket.connect(path, LIMIT)
        try:
            peer.sendall(question)
        except OSError:
            pass  # closed by the proxy, as it is too long
        peers.append(peer)
    began = time.monotonic()
    for _ in range(20):
        assert harness.reply(harness.cell("1"))["status"] == "ok"
    assert time.monotonic() - began < scaled(2)
    assert look(harness)["state"] in ("running", "idle")
    for peer in peers:
        peer.close()


def test_what_is_no_kernel_of_ours_is_told_in_words(tmp_path: Path) -> None:
    for content, why in [
        (None, "No such file"),
        ("{", "is not valid"),
        ('{"key": ""}', "an empty key"),
        ("[]", "is not valid"),
    ]:
        connection_file = tmp_path / "kernel-5e.json"
        if content is not None:
            connection_file.write_text(content)
        with pytest.raises(NoKernel, match=why):
            watch.look(str(connection_file), os.environ, seconds=1)
    connection_file.write_text(json.dumps({"key": "of a plain kernel"}))
    with pytest.raises(NoKernel, match="no Bitfusion kernel of this user runs with it"):
        watch.look(str(connection_file), os.environ, seconds=1)
