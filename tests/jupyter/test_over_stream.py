"""The kernel as it is, its IPython in namespaces of its own: all between them goes over the stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jupyter.cells import running_cell, wait_for_death
from tests.jupyter.conftest import FIRST_CELL
from tests.jupyter.live_kernel import LiveKernel
from tests.pods.command.pods import CLIENT_SCRIPT, ROOT, Pods, pods_in
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    with pods_in(tmp_path) as made:
        yield made


@pytest.fixture
def kernel(
    kernelspecs: Path, pods: Pods, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LiveKernel]:
    client = tmp_path / "client" / "bitfusion"
    client.parent.mkdir()
    client.write_text(CLIENT_SCRIPT)
    client.chmod(0o755)
    for name, text in pods.environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("BITFUSION_CLIENT", str(client))
    made = LiveKernel(FIRST_CELL, cwd=str(ROOT))
    made.connect()
    yield made
    made.stop()
    wait_until(lambda: not list(pods.run_folder.iterdir()), "the end of the private folder", 15)


def test_cells_run_in_the_other_place(kernel: LiveKernel) -> None:
    cell = kernel.run("import os, socket; print(os.environ['HOSTNAME'], os.environ['CUDA_VISIBLE_DEVICES'])")
    assert cell.stream() == "the-pod GPU-7\n", (cell.error_text, kernel.run("%bitfusion log").stream())
    assert kernel.run("os.getppid() < 10").result == "True", "numbered in another pid namespace"
    assert kernel.run("!echo from a child").stream() == "from a child\r\n"
    (shown,) = kernel.run(
        "from IPython.display import display; display({'text/plain': 'x' * 10 ** 6}, raw=True)"
    ).of("display_data")
    assert len(shown["content"]["data"]["text/plain"]) == 10**6
    assert "Held for" in kernel.run("x = 1\n%bitfusion").stream(), "the magic reaches the proxy"


@pytest.mark.long
def test_an_interrupt_and_a_restart_work_as_here(kernel: LiveKernel) -> None:
    running = running_cell(kernel.client)
    kernel.interrupt()
    assert "KeyboardInterrupt" in kernel.client.finish(running, 10).error_text
    kernel.run("x = 1")
    kernel.restart()
    assert kernel.run("print('x' in globals())").stream() == "False\n"
    assert kernel.run("%bitfusion release -y").stream().startswith("1 GPU given back.")
    assert kernel.run("print('x' in globals())").stream() == "False\n"


@pytest.mark.long
def test_input_is_asked_here_and_read_there(kernel: LiveKernel) -> None:
    cell = kernel.client.send("print(input('who? ')[::-1])", allow_stdin=True)
    kernel.client.pump(lambda: kernel.client.input_requests, 15, "the question")
    kernel.client.answer("abc")
    assert kernel.client.finish(cell).stream() == "cba\n"


def test_a_cell_outlives_a_connection_that_is_cut(kernel: LiveKernel, pods: Pods) -> None:
    cell = kernel.client.send(
        "import time\nfor number in range(400):\n    print(number, flush=True)\n    time.sleep(0.005)"
    )
    kernel.client.pump(cell.stream, 15, "the first line")
    for _ in range(3):
        kernel.client.settle(0.3)
        pods.relay.cut()
    kernel.client.finish(cell)
    assert cell.stream() == "".join(f"{number}\n" for number in range(400))


def test_a_kernel_that_dies_there_is_told_here(kernel: LiveKernel) -> None:
    cell = kernel.client.send("import os; os.kill(os.getpid(), 9)")
    wait_for_death(kernel.client, cell, 10)
    assert "SIGKILL" in cell.error_text
