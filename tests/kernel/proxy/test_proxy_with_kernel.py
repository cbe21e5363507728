"""The proxy with a kernel behind it: commands beside it, interrupts, and deaths in the chain."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from bitfusion_kernel.magic.commands import RESTARTS
from tests.kernel.proxy_harness import GRANT, STAMP, ProxyHarness, StartProxy, kinds
from tests.kernel.supervisor_harness import gone
from tests.support.machine import scaled


@pytest.fixture
def running(proxy: StartProxy) -> ProxyHarness:
    """A proxy whose kernel has run a first cell."""
    harness = proxy(GRANT, others="time.sleep(30)")
    assert harness.reply(harness.cell("import os, time"))["execution_count"] == 1
    return harness


def _pid(harness: ProxyHarness, expression: str) -> int:
    return int(harness.printed(harness.cell(f"print({expression})")))


def test_commands_beside_a_running_kernel(running: ProxyHarness) -> None:
    assert running.printed(running.cell("%bitfusion acquire")) == "This kernel already has its GPU.\n"
    assert running.printed(running.cell("%bitfusion request -n 2")) == (
        "The new size is 2 GPUs. This kernel keeps its GPUs until it restarts; use --now to change at once.\n"
        f"{RESTARTS}\n"
    )
    assert running.printed(running.cell("%bitfusion log")).startswith(f"{STAMP} Requesting GPUs [0]")
    rows = running.printed(running.cell("%bitfusion")).splitlines()
    assert rows[0] == "Kernel     running on its GPU"
    assert "GPU        0 – 16160 MiB each" in rows
    command = running.cell("%bitfusion")
    assert running.reply(command)["execution_count"] == 1
    assert running.reply(running.cell("2"))["execution_count"] == 2


def test_the_magic_inside_other_code_asks_the_proxy(running: ProxyHarness) -> None:
    status = running.printed(running.cell("x = 1\n%bitfusion status"))
    assert status.startswith("Kernel     running on its GPU\n")
    cell = running.cell("x = 1\n%bitfusion relase")
    assert running.printed(cell).startswith("Unknown command 'relase'. Commands: status")


def test_a_client_command_is_ended_by_an_interrupt_in_words(running: ProxyHarness) -> None:
    cell = running.cell("%bitfusion health")
    running.on_iopub(lambda message: message.parent_header.get("msg_id") == cell)
    running.interrupt()
    reply = running.reply(cell)
    assert reply["evalue"] == "The `bitfusion` client failed."
    assert reply["traceback"][1:] == ["Answer: interrupted", "What to do: run the cell again."]
    assert running.reply(running.cell("1"))["status"] == "ok"


def test_a_cell_in_a_subshell_runs_beside_a_client_command(running: ProxyHarness) -> None:
    create = running.send("create_subshell_request", on="control")
    subshell = running.reply(create, on="control")["subshell_id"]
    health = running.cell("%bitfusion health")
    aside = running.cell("print('aside')", subshell=subshell)
    status = running.cell("%bitfusion", subshell=subshell)
    assert running.reply(aside)["status"] == "ok"
    assert running.printed(status).startswith("Kernel     running on its GPU")
    running.interrupt()
    assert running.reply(health)["status"] == "error"


def test_an_interrupt_reaches_the_kernel_and_not_the_wrapper(running: ProxyHarness) -> None:
    cell = running.cell("print('on', flush=True); time.sleep(30)")
    running.on_iopub(lambda message: message.type == "stream")
    running.send("interrupt_request", on="control")
    assert running.reply(cell)["ename"] == "KeyboardInterrupt"
    running.until_idle(cell)  # between reply and idle ipykernel itself may still abort what arrives
    assert running.reply(running.cell("1"))["status"] == "ok"


def test_a_kernel_killed_in_a_cell_is_told_with_its_signal(running: ProxyHarness) -> None:
    cell, behind = running.cell("os.kill(os.getpid(), 9)"), running.cell("1")
    answer, next_step = running.error(cell)["traceback"][1:]
    # ipykernel 7.3 may have printed an error of its own while it started, which is then its last output.
    assert answer.startswith("Answer: the kernel process was killed by SIGKILL")
    assert next_step == (
        "What to do: restart the kernel, unless Jupyter has done that already, "
        "and run the cells again from the first one."
    )
    assert running.process.wait(scaled(5)) == 1
    assert running.unanswered(cell, behind)


def test_a_wrapper_killed_under_a_cell_is_told(running: ProxyHarness) -> None:
    launcher = _pid(running, "os.getppid()")
    kernel = _pid(running, "os.getpid()")
    wrapper = _pid(running, f"open('/proc/{launcher}/stat').read().rpartition(')')[2].split()[1]")
    cell = running.cell("time.sleep(30)")
    running.on_iopub(
        lambda message: message.type == "execute_input" and message.parent_header["msg_id"] == cell
    )
    os.kill(wrapper, signal.SIGKILL)
    error = running.error(cell)
    assert error["ename"] == "WrapperDied"
    assert error["traceback"][2].startswith("Answer: `bitfusion run` was killed by SIGKILL")
    assert running.process.wait(scaled(5)) == 1
    assert running.unanswered(cell)
    assert gone(kernel)


def test_shutdown_ends_a_kernel_that_is_busy(running: ProxyHarness) -> None:
    kernel = _pid(running, "os.getpid()")
    running.cell("import signal; signal.signal(2, signal.SIG_IGN); print('on', flush=True); time.sleep(30)")
    running.on_iopub(lambda message: message.type == "stream" and message.content["text"] == "on\n")
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(scaled(8))
    assert gone(kernel)


def test_acquire_takes_the_gpu_now_and_tells_what_it_got(proxy: StartProxy, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run = f"while not os.path.exists({str(go)!r}): time.sleep(0.02)\n{GRANT}"
    harness = proxy(run, BITFUSION_ACQUIRE="manual")
    cell = harness.cell("%bitfusion acquire")
    assert harness.shown(cell).splitlines()[1] == "No position in the queue has been reported yet"
    go.touch()
    text = harness.printed(cell)
    assert text.splitlines()[:2] == ["Request    1 GPU", "GPU        0 – 16160 MiB each"]
    seen = [kind for kind in kinds(harness.until_idle(cell)) if kind != "update_display_data"]
    assert seen == ["busy", "display_data", "clear_output", "stream", "idle"]
    assert harness.reply(harness.cell("1"))["execution_count"] == 1


def test_a_gpu_taken_at_start_serves_the_first_cell(proxy: StartProxy) -> None:
    harness = proxy(GRANT, BITFUSION_ACQUIRE="start")
    assert harness.reply(harness.cell("1"))["execution_count"] == 1


def test_a_variable_that_is_no_setting_is_told_in_the_first_cell_only(proxy: StartProxy) -> None:
    harness = proxy(GRANT, BITFUSION_NUM_GPUS="2")
    told = "BITFUSION_NUM_GPUS has no effect. Did you mean BITFUSION_GPUS?\n"
    first = harness.until_idle(harness.cell("print('ran')"))
    streams = [(m.content["name"], m.content["text"]) for m in first if m.type == "stream"]
    assert streams == [("stderr", told), ("stdout", "ran\n")]
    assert harness.printed(harness.cell("print('again')")) == "again\n"
    assert f"Note       {told}" in harness.printed(harness.cell("%bitfusion"))
