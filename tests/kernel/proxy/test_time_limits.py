"""Tools that limit the time of a kernel's start or of a cell: what is held, and what the log tells."""

from __future__ import annotations

import re

import pytest

from tests.kernel.proxy_harness import GRANT, StartProxy, refuse
from tests.support.machine import scaled
from tests.support.waiting import wait_until


def test_a_kernel_that_waits_in_its_start_is_not_ready_and_its_log_says_why(proxy: StartProxy) -> None:
    harness = proxy(BITFUSION_ACQUIRE="start_and_wait")
    asked = harness.send("kernel_info_request")
    assert harness.reply(harness.send("kernel_info_request", on="control"), on="control")["status"] == "ok"
    assert harness.reply(harness.send("comm_info_request"))["status"] == "ok"
    waits = "bitfusion_kernel: the kernel is ready when it has 1 GPU"  # and why, if the client is quick
    wait_until(lambda: waits in harness.stderr.read_text(), "the wait in the log")
    wait_until(
        lambda: "position 1 of 2" in harness.printed(harness.cell("%bitfusion log")), "the client's word"
    )
    harness.reply(harness.send("shutdown_request", on="control", restart=False), on="control")
    assert harness.process.wait(scaled(5)) == 0
    assert harness.unanswered(asked)
    said = harness.stderr.read_text()
    assert re.search(
        r"kernel: shut down before the kernel was ready, after \d+ s of waiting for 1 GPU \(", said
    )
    assert "The limit for the kernel's start is --start-timeout of papermill" in said


def test_a_kernel_that_waits_in_its_start_is_ready_when_it_has_its_gpu(proxy: StartProxy) -> None:
    harness = proxy(GRANT, BITFUSION_ACQUIRE="start_and_wait")
    asked = harness.send("kernel_info_request")
    cell = harness.cell("print('ran')")
    assert harness.reply(asked)["implementation_version"] != "0", "it is the kernel that answers"
    assert harness.reply(cell)["status"] == "ok"


def test_a_start_that_gets_no_gpu_is_ready_and_the_first_cell_says_why(proxy: StartProxy) -> None:
    refused = refuse("Error: timed out after 5s waiting for 1 GPUs")
    harness = proxy(f"time.sleep(0.5); {refused}", BITFUSION_ACQUIRE="start_and_wait")
    assert harness.reply(harness.send("kernel_info_request"))["status"] == "ok"
    assert harness.reply(harness.cell("1"))["ename"] == "WaitTimedOut"


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("allow_stdin", [False, True])
def test_the_log_of_a_tool_that_gives_up_says_what_the_cell_waited_for(
    proxy: StartProxy, allow_stdin: bool, restart: bool
) -> None:
    for _ in range(10):
        harness = proxy()
        cell = harness.cell("1", allow_stdin=allow_stdin)
        harness.shown(cell, "Position 1 of 2")
        if harness.interrupt_and_shut_down(restart=restart):
            break
    assert harness.process.wait(scaled(5)) == 0
    said = harness.stderr.read_text()
    if allow_stdin or restart:
        assert said == "", "somebody did it who saw the wait"
    else:
        assert "shut down after " in harness.error(cell)["traceback"][2]
        assert re.fullmatch(
            r"bitfusion_kernel: shut down while a cell waited, after \d+ s of waiting for 1 GPU "
            r"\(position 1 of 2; held by ada: x\.ipynb \(1 GPU, <14:03>\)\)\. "
            r"A time limit for cells counts this wait\. With BITFUSION_ACQUIRE=start_and_wait .*\n",
            said,
        )
