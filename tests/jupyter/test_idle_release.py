"""A kernel that nobody uses gives its GPU back: warned before, kept by any work, told after."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.jupyter.cells import waiting_cell
from tests.jupyter.client import Cell
from tests.jupyter.conftest import Launch
from tests.jupyter.debugger import debug, stopped_cell
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import LiveKernel

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]


@pytest.fixture
def kernel(launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> LiveKernel:
    """One that gives its GPU back after the shortest time that there is: a warning after half of it."""
    monkeypatch.setenv("BITFUSION_IDLE_RELEASE", "1m")
    return launch("bitfusion")


def said_under(cell: Cell) -> list[str]:
    """What was shown in a cell, in order."""
    return [each["content"]["data"]["text/plain"] for each in cell.of("display_data", "update_display_data")]


def wait_for_words(kernel: LiveKernel, cell: Cell, words: str, limit_s: float) -> None:
    def is_said() -> bool:
        return any(words in text for text in said_under(cell))

    kernel.client.pump(is_said, limit_s, words, lambda: said_under(cell))


def test_it_is_warned_gives_its_gpu_back_and_the_next_cell_says_so(kernel: LiveKernel, pool: Pool) -> None:
    cell = kernel.run("x = 1")
    assert "gives its GPU back at" in kernel.run("%bitfusion").stream()
    wait_for_words(kernel, cell, "This kernel gives its GPU back at", 45)
    assert len(pool.leases()) == 1
    wait_for_words(kernel, cell, "This kernel gave its GPU back at", 45)
    assert pool.leases() == []
    with pool.held() as holder:
        again = waiting_cell(kernel.client, "print('x' in globals())")
        pool.end(holder)
        kernel.client.finish(again, 10)
    assert again.stream() == "False\n"
    assert "This notebook gave its GPU back at" in again.stream("stderr")
    assert kernel.run("6 * 7").of("stream") == []


def comm_message(kernel: LiveKernel) -> None:
    kernel.client.ask("comm_msg", {"comm_id": "none", "data": {}})


def subshell_of(kernel: LiveKernel) -> str:
    return str(kernel.client.request("create_subshell_request", {}, "control")["subshell_id"])


def cell_in_a_subshell(kernel: LiveKernel) -> None:
    kernel.client.finish(kernel.client.send("x = 3", subshell_id=subshell_of(kernel)))


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda kernel: kernel.run("x = 2"), "a cell"),
        (lambda kernel: kernel.run("%bitfusion"), "a cell"),
        (cell_in_a_subshell, "a cell in a subshell"),
        (comm_message, "a message of a widget (comm)"),
    ],
    ids=["cell", "command", "subshell", "comm"],
)
def test_any_work_keeps_the_gpu_and_is_named(
    kernel: LiveKernel, pool: Pool, work: Callable[[LiveKernel], object], words: str
) -> None:
    cell = kernel.run("x = 1")
    wait_for_words(kernel, cell, "This kernel gives its GPU back at", 45)
    work(kernel)
    wait_for_words(kernel, cell, "This kernel kept its GPU", 5)
    assert said_under(cell)[-1].endswith(f" work resumed ({words})")
    assert len(pool.leases()) == 1


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(
            "import threading, time\n"
            "def tick():\n    for _ in range(60): time.sleep(1); print('tick', flush=True)\n"
            "threading.Thread(target=tick).start()",
            id="output",
        ),
        pytest.param(
            "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'while 1: pass'])", id="child"
        ),
    ],
)
def test_what_goes_on_behind_a_cell_keeps_the_gpu(kernel: LiveKernel, pool: Pool, work: str) -> None:
    cell = kernel.run(work)
    kernel.client.settle(70)
    assert [text for text in said_under(cell) if "gave its GPU back" in text] == []
    assert len(pool.leases()) == 1
    kernel.interrupt()


@pytest.mark.parametrize("stands", ["at a question", "at a breakpoint"])
def test_a_cell_that_stands_is_in_work(kernel: LiveKernel, pool: Pool, stands: str) -> None:
    client, aside = kernel.client, subshell_of(kernel)
    if stands == "at a question":
        cell = client.send("print(input('so? '))", allow_stdin=True)
        client.pump(lambda: client.input_requests, 20, "the question")
    else:
        cell, thread, _ = stopped_cell(client)
    client.settle(70)
    assert said_under(cell) == []
    assert len(pool.leases()) == 1
    assert "works: a cell\n" in client.finish(client.send("%bitfusion", subshell_id=aside)).stream()
    if stands == "at a question":
        client.answer("42")
    else:
        debug(client, "continue", {"threadId": thread}, 10)
    assert client.finish(cell).stream() == "42\n"
