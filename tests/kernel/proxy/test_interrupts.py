"""Every phase of a kernel × every way to interrupt it: what ends, what lives on, and that none is lost."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.kernel.proxy_harness import GRANT, WAIT_FOR_EVER, ProxyHarness, StartProxy, refuse
from tests.support.machine import scaled
from tests.support.processes import freeze, thaw
from tests.support.waiting import wait_until

Interrupt = Callable[[], None]

SLEEP = "import time; time.sleep(600)"
INTERRUPTED = ("KeyboardInterrupt", "ReplyLost")
"""How a cell in the kernel ends: with the second where the interrupt meets ipykernel between taking the cell
and running it, as on a busy machine."""

SLOW_START = f"""
place = os.path.dirname(sys.argv[0])
os.environ["PYTHONPATH"] = place
with open(place + "/sitecustomize.py", "w") as file:
    file.write("import time; open(" + repr(place + "/starts") + ", 'w'); time.sleep(20)")
{GRANT}"""


def _interrupt(harness: ProxyHarness, how: str) -> None:
    if how == "SIGINT":
        harness.process.send_signal(signal.SIGINT)
    else:
        harness.send("interrupt_request", on="control")


def _pending(pid: int) -> bool:
    """Whether a signal still waits for one of a process's threads."""
    lines = [
        line.split()
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
    ]
    return any(int(line[1], 16) for line in lines if line[:1] in (["SigPnd:"], ["ShdPnd:"]))


def _interrupt_while_idle(harness: ProxyHarness, how: str) -> None:
    """The same, and the proxy has served it before anything else is sent."""
    _interrupt(harness, how)
    wait_until(lambda: not _pending(harness.process.pid), "the signal's delivery", 5)
    for _ in range(3):  # the loop may serve what comes on control before the signal
        harness.reply(harness.send("kernel_info_request", on="control"), on="control")


def _running(proxy: StartProxy, others: str = "print('unknown')") -> ProxyHarness:
    harness = proxy(GRANT, others=others)
    assert harness.reply(harness.cell("import os, time"))["status"] == "ok"
    return harness


def _works(harness: ProxyHarness) -> None:
    """Nothing of the interrupt is left to hit the next cell."""
    harness.script(GRANT)
    cell = harness.cell("print('unharmed')")
    assert harness.reply(cell)["status"] == "ok", harness.until_idle(cell)[-2].content
    assert harness.printed(cell) == "unharmed\n"


def idle_before_the_first_request(proxy: StartProxy, how: str) -> None:
    harness = proxy(GRANT)
    _interrupt_while_idle(harness, how)
    _works(harness)


def queued_behind_a_client_command(proxy: StartProxy, how: str) -> None:
    harness = proxy(GRANT, others="time.sleep(600)")
    command, queued = harness.cell("%bitfusion health"), harness.cell(SLEEP)
    harness.on_iopub(lambda message: message.content.get("execution_state") == "busy")
    time.sleep(scaled(0.1))  # until the command runs
    _interrupt(harness, how)
    assert harness.reply(command)["traceback"][1] == "Answer: interrupted"
    assert harness.reply(queued)["status"] == "aborted"
    _works(harness)


def waiting(proxy: StartProxy, how: str) -> None:
    harness = proxy(WAIT_FOR_EVER)
    cell, queued = harness.cell(SLEEP), harness.cell(SLEEP)
    harness.shown(cell)
    _interrupt(harness, how)
    assert harness.reply(cell)["ename"] == "WaitCancelled"
    assert harness.reply(queued)["status"] == "aborted"
    _works(harness)


def granted_and_starting(proxy: StartProxy, how: str) -> None:
    harness = proxy(SLOW_START)
    cell = harness.cell(SLEEP)
    wait_until((harness.folder / "starts").exists, "the kernel's start", 15)
    _interrupt(harness, how)
    assert harness.reply(cell)["ename"] == "WaitCancelled"
    (harness.folder / "sitecustomize.py").unlink()
    _works(harness)


def in_the_kernel_and_not_begun(proxy: StartProxy, how: str) -> None:
    harness = _running(proxy)
    pid = int(harness.printed(harness.cell("print(os.getpid())")))
    freeze(pid)
    try:
        cell = harness.cell(SLEEP)
        harness.reply(harness.cell("%bitfusion", subshell="beside"))  # the proxy has sent the kernel the cell
        _interrupt(harness, how)
        time.sleep(scaled(0.2))  # until an interrupt that is not kept back would be there, too
    finally:
        thaw(pid)
    assert harness.reply(cell)["ename"] in INTERRUPTED
    harness.until_idle(cell)
    _works(harness)


def running(proxy: StartProxy, how: str) -> None:
    harness = _running(proxy)
    cell = harness.cell("print('on', flush=True); time.sleep(600)")
    harness.on_iopub(lambda message: message.type == "stream")
    _interrupt(harness, how)
    assert harness.reply(cell)["ename"] in INTERRUPTED
    harness.until_idle(cell)
    _works(harness)


def a_client_command_beside_the_kernel(proxy: StartProxy, how: str) -> None:
    harness = _running(proxy, others="time.sleep(600)")
    command = harness.cell("%bitfusion health")
    harness.on_iopub(lambda message: message.parent_header.get("msg_id") == command)
    time.sleep(scaled(0.1))  # until the command runs
    _interrupt(harness, how)
    assert harness.reply(command)["traceback"][1] == "Answer: interrupted"
    _works(harness)


def refused(proxy: StartProxy, how: str) -> None:
    harness = proxy(refuse("Error: not enough GPUs available: 0 of 1"))
    assert harness.reply(harness.cell("1"))["ename"] == "NoGpusAvailable"
    _interrupt_while_idle(harness, how)
    _works(harness)


def dead(proxy: StartProxy, how: str) -> None:
    harness = _running(proxy)
    cell = harness.cell("os._exit(3)")
    harness.error(cell)
    _interrupt(harness, how)
    assert harness.process.wait(scaled(5)) == 1
    assert harness.unanswered(cell)
    assert "/bitfusion_kernel/" not in harness.stderr.read_text(), "a traceback of ours"


PHASES = [
    idle_before_the_first_request,
    queued_behind_a_client_command,
    waiting,
    granted_and_starting,
    in_the_kernel_and_not_begun,
    running,
    a_client_command_beside_the_kernel,
    refused,
    dead,
]


@pytest.mark.parametrize("how", ["interrupt_request", "SIGINT"])
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
def test_an_interrupt_in_each_phase(
    proxy: StartProxy, phase: Callable[[StartProxy, str], None], how: str
) -> None:
    phase(proxy, how)


def test_an_interrupt_that_the_kernel_before_did_not_take_does_not_end_the_wait(proxy: StartProxy) -> None:
    before = datetime.now(timezone.utc).isoformat()
    harness = proxy(WAIT_FOR_EVER)
    cell = harness.cell("1")
    old = harness.send("interrupt_request", on="control", header={"date": before})
    assert harness.reply(old, on="control") == {"status": "ok"}
    harness.shown(cell)
    assert not harness.shell.poll(int(scaled(0.2) * 1000)), "the wait has ended"
    harness.interrupt()
    assert harness.reply(cell)["ename"] == "WaitCancelled"
