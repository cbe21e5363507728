"""Kernels of one pod share its budget: what each asks for, and what the one that waits shows."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bitfusion_client.request.gpu_request import GpuRequest
from tests.kernel.pod.fake_pod import FakePod
from tests.kernel.proxy_harness import ProxyHarness, StartProxy
from tests.support.machine import scaled
from tests.support.waiting import wait_until

GRANTED = """
file = os.path.join(os.path.dirname(sys.argv[0]), "asked")
with open(file + ".new", "w") as told:
    print(*words[1 : words.index("--")], file=told)
os.rename(file + ".new", file)
time.sleep(60)
"""
"""A client that tells what it was asked for, and then waits for ever."""


@pytest.fixture
def pod(tmp_path: Path) -> FakePod:
    """A pod with one GPU."""
    return FakePod(tmp_path)


def start(proxy: StartProxy, pod: FakePod, name: str, **environment: str) -> ProxyHarness:
    """The proxy of one notebook of the pod."""
    return proxy(GRANTED, **pod.environment, JPY_SESSION_NAME=f"/home/ada/{name}", **environment)


def asked(harness: ProxyHarness) -> str:
    """The options that `bitfusion run` got, once it has been started."""
    file = harness.folder / "asked"
    wait_until(file.exists, "the start of bitfusion run")
    return file.read_text().strip()


def test_the_second_kernel_takes_what_is_left(proxy: StartProxy, pod: FakePod) -> None:
    first = start(proxy, pod, "first.ipynb", BITFUSION_PARTIAL="0.5")
    first.cell("1")
    assert asked(first) == "-n 1 -p 0.5"
    second = start(proxy, pod, "second.ipynb")
    second.cell("1")
    assert asked(second) == "-n 1 -p 0.5"
    assert pod.held() == [GpuRequest(1, 0.5), GpuRequest(1, 0.5)]


def test_a_kernel_that_finds_nothing_left_waits_and_names_the_notebook(
    proxy: StartProxy, pod: FakePod
) -> None:
    first = start(proxy, pod, "first.ipynb")
    first.cell("1")
    assert asked(first) == "-n 1"
    second = start(proxy, pod, "second.ipynb")
    cell = second.cell("1")
    shown = second.shown(cell, "first.ipynb (1 GPU, since ")
    assert "Asked for what is left of this pod's budget at " in shown
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    assert asked(second) == "-n 1"
    assert [entry.notebook for entry in pod.entries()] == ["second.ipynb"]


def test_an_interrupt_ends_the_wait_and_the_next_cell_waits_again(proxy: StartProxy, pod: FakePod) -> None:
    first = start(proxy, pod, "first.ipynb")
    first.cell("1")
    asked(first)
    second = start(proxy, pod, "second.ipynb")
    cell = second.cell("1")
    second.shown(cell)
    second.interrupt()
    error = second.error(cell)
    assert error["ename"] == "WaitCancelled"
    assert "Asked for: what is left of this pod's budget" in "\n".join(error["traceback"])
    assert second.reply(cell)["status"] == "error"
    wait_until(lambda: [entry.notebook for entry in pod.entries()] == ["first.ipynb"])
    again = second.cell("1")
    second.shown(again, "first.ipynb (1 GPU, since ")
    first.process.send_signal(signal.SIGTERM)
    first.process.wait()
    assert asked(second) == "-n 1"


def test_the_position_follows_when_another_leaves_the_queue(proxy: StartProxy, pod: FakePod) -> None:
    first, second, third = (start(proxy, pod, f"{name}.ipynb") for name in ("first", "second", "third"))
    first.cell("1")
    asked(first)
    waits = second.cell("1")
    second.shown(waits, "position 1 of 1 among those that wait")
    cell = third.cell("1")
    third.shown(cell, "position 2 of 2 among those that wait")
    second.interrupt()
    second.error(waits)
    third.shown(cell, "position 1 of 1 among those that wait")


def test_more_than_the_budget_is_an_error_of_the_cell_and_of_the_request(
    proxy: StartProxy, pod: FakePod
) -> None:
    harness = start(proxy, pod, "first.ipynb", BITFUSION_GPUS="2")
    error = harness.error(harness.cell("1"))
    assert error["ename"] == "OverBudget"
    told = "\n".join(error["traceback"])
    assert "the budget of this pod is 1 GPU, as chosen when the notebook was made" in told
    cell = harness.cell("%bitfusion request -n 3")
    assert harness.error(cell)["ename"] == "OverBudget"
    assert not (harness.folder / "asked").exists()
    assert pod.entries() == []


def test_status_and_pool_show_the_budget(proxy: StartProxy, pod: FakePod) -> None:
    first = start(proxy, pod, "first.ipynb", BITFUSION_PARTIAL="0.25")
    first.cell("1")
    asked(first)
    second = start(proxy, pod, "second.ipynb")
    told = second.printed(second.cell("%bitfusion"))
    assert "Left      1 GPU × 75 %" in told
    assert "Held by   first.ipynb (1 GPU × 25 %, since " in told
    table = second.shown(second.cell("%bitfusion pool"))
    assert "Budget of this pod: 1 GPU · left: 1 GPU × 75 %" in table


def test_a_supervisor_that_is_killed_frees_what_it_held(proxy: StartProxy, pod: FakePod) -> None:
    first = start(proxy, pod, "first.ipynb")
    first.cell("1")
    asked(first)
    children = Path(f"/proc/{first.process.pid}/task/{first.process.pid}/children").read_text().split()
    second = start(proxy, pod, "second.ipynb")
    second.shown(second.cell("1"))
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    assert asked(second) == "-n 1"
    assert first.process.wait(scaled(5)) == 1  # once it has ended what its supervisor left
