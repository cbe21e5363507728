"""The proxy as a client meets it before, while and instead of having a kernel."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bitfusion_kernel.protocol.wire import Wire
from tests.kernel.proxy_harness import ENTRY, GRANT, WAIT_FOR_EVER, StartProxy, kinds, refuse
from tests.support.machine import scaled
from tests.support.processes import wait_until_gone

# -- answers without a kernel --------------------------------------------------------------------------


def test_each_subscriber_is_welcomed(proxy: StartProxy) -> None:
    harness = proxy()
    second = harness.subscriber()
    assert second.poll(5000)
    assert harness.wire.read(second.recv_multipart()).type == "iopub_welcome"
    second.close()


def test_a_request_is_answered_between_busy_and_idle(proxy: StartProxy) -> None:
    harness = proxy()
    for channel in ("shell", "control"):
        request = harness.send("kernel_info_request", on=channel)
        reply = harness.reply_message(request, on=channel)
        assert (reply.type, reply.content["status"]) == ("kernel_info_reply", "ok")
        assert kinds(harness.until_idle(request)) == ["busy", "idle"]


def test_a_wrong_signature_is_ignored(proxy: StartProxy) -> None:
    harness = proxy()
    harness.shell.send_multipart(Wire(b"guessed").build("kernel_info_request", {}))
    harness.shell.send_multipart([b"noise"])
    harness.control.send_multipart(Wire(b"guessed").build("shutdown_request", {"restart": False}))
    request = harness.send("kernel_info_request")
    assert harness.reply(request)["status"] == "ok"
    assert {message.parent_header.get("msg_id") for message in harness.published} <= {None, request}


# -- waiting -------------------------------------------------------------------------------------------


def test_a_waiting_cell_shows_place_who_holds_and_how_to_cancel(proxy: StartProxy) -> None:
    harness = proxy()
    cell = harness.cell("1")
    headline, *details = harness.shown(cell, "Position").splitlines()
    clock = r"\d\d:\d\d(?: UTC)?"
    waited = re.fullmatch(rf"Asked for 1 GPU at {clock} · waited (\d+) s · as of {clock}", headline)
    assert waited
    assert details == [
        "Position 1 of 2 in the queue",
        "Held by:",
        "  ada: x.ipynb (1 GPU, <14:03>)",
        "To stop waiting, interrupt the kernel. The notebook is not lost.",
    ]
    assert f"waited {waited[1]} s" not in harness.shown(cell)
    busy, shown, *updates = kinds(harness.published)[kinds(harness.published).index("busy") :]
    assert (busy, shown, set(updates)) == ("busy", "display_data", {"update_display_data"})


def test_an_interrupt_ends_the_wait_in_words_and_aborts_the_cells_behind(proxy: StartProxy) -> None:
    harness = proxy()
    cell, behind = harness.cell("1"), harness.cell("2")
    harness.shown(cell)
    harness.interrupt()
    reply = harness.reply(cell)
    assert (reply["status"], reply["ename"]) == ("error", "WaitCancelled")
    assert reply["evalue"] == "Waiting for GPUs was cancelled."
    assert reply["traceback"][1] == "Asked for: 1 GPU"
    assert reply["traceback"][2].startswith("Answer: interrupted after ")
    assert reply["traceback"][3] == "What to do: run the cell again to wait again."
    shown, busy_after_the_interrupt = ["busy", "display_data"], ["busy"]
    end = ["clear_output", "error", "idle"]
    seen = [kind for kind in kinds(harness.until_idle(cell)) if kind != "update_display_data"]
    assert seen == [*shown, *busy_after_the_interrupt, *end]
    aborted = harness.reply_message(behind)
    assert aborted.content["status"] == aborted.metadata["status"] == "aborted"
    assert kinds(harness.until_idle(behind)) == ["busy", "idle"]
    again = harness.cell("1")
    assert harness.shown(again).startswith("Asked for 1 GPU")


def test_sigint_ends_the_wait_too(proxy: StartProxy) -> None:
    harness = proxy()
    cell = harness.cell("1")
    harness.shown(cell)
    harness.process.send_signal(signal.SIGINT)
    assert harness.reply(cell)["ename"] == "WaitCancelled"


def test_without_stop_on_error_the_next_cell_tries_by_itself(proxy: StartProxy) -> None:
    harness = proxy()
    cell, behind = harness.cell("1", stop_on_error=False), harness.cell("2")
    harness.shown(cell)
    harness.interrupt()
    assert harness.reply(cell)["status"] == "error"
    assert harness.shown(behind).startswith("Asked for 1 GPU")


def test_an_interrupt_before_the_first_message_is_answered_and_forgotten(proxy: StartProxy) -> None:
    harness = proxy()
    harness.interrupt()
    cell = harness.cell("1")
    first = harness.shown(cell)
    time.sleep(0.3)
    assert harness.shown(cell) != first, "the wait goes on"


def test_an_interrupt_followed_by_a_shutdown_shows_no_error(proxy: StartProxy) -> None:
    for _ in range(10):
        harness = proxy()
        harness.shown(harness.cell("1"))
        if harness.interrupt_and_shut_down(restart=True):
            break
    assert harness.process.wait(scaled(5)) == 0
    while harness.iopub.poll(200):
        harness.published.append(harness.wire.read(harness.iopub.recv_multipart()))
    assert "error" not in kinds(harness.published)


# -- failures told in the cell -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "name", "lines"),
    [
        (
            "Error: not enough GPUs available: 0 of 1",
            "NoGpusAvailable",
            ["No GPU is free right now.", "Asked for: 1 GPU", "Answer: not enough GPUs available: 0 of 1"],
        ),
        (
            "Error: no server can satisfy the request: 9 GPUs",
            "NeverSatisfiable",
            ["No server in the pool can ever satisfy this request.", "Asked for: 1 GPU"],
        ),
        (
            "Error: timed out after 30m0s waiting for 1 GPUs",
            "WaitTimedOut",
            ["No GPU became free in time.", "Asked for: 1 GPU"],
        ),
        ("something odd", "ClientFailed", ["The `bitfusion` client failed.", "Asked for: 1 GPU"]),
    ],
)
def test_the_clients_refusal_is_told_in_the_cell(
    proxy: StartProxy, said: str, name: str, lines: list[str]
) -> None:
    harness = proxy(refuse(said))
    cell = harness.cell("1")
    reply = harness.reply(cell)
    assert reply["ename"] == name
    assert [reply["evalue"], *reply["traceback"][1:]][: len(lines)] == lines
    assert "execute_input" not in kinds(harness.until_idle(cell))
    assert reply["execution_count"] == 0


def test_a_wrapper_killed_while_it_queues_is_told(proxy: StartProxy) -> None:
    harness = proxy("os.kill(os.getpid(), 9)")
    reply = harness.reply(harness.cell("1"))
    assert reply["ename"] == "ClientFailed"
    assert reply["traceback"][2] == "Answer: it printed nothing and was killed by SIGKILL"


def test_a_wrong_setting_is_one_clear_line_in_the_first_cell(proxy: StartProxy) -> None:
    harness = proxy(BITFUSION_PARTIAL="1.5")
    first, second = harness.cell("1"), harness.cell("2")
    reply = harness.reply(first)
    assert reply["ename"] == "WrongSetting"
    assert reply["evalue"].startswith(
        'Wrong setting partial="1.5" (from environment variable BITFUSION_PARTIAL)'
    )
    assert harness.reply(second)["status"] == "aborted"


def test_a_missing_client_is_told_with_its_path(proxy: StartProxy) -> None:
    harness = proxy(BITFUSION_CLIENT="/no/such/bitfusion")
    reply = harness.reply(harness.cell("1"))
    assert reply["evalue"] == "The configured `bitfusion` command cannot be run."
    assert reply["traceback"][1] == "Answer: looked at /no/such/bitfusion"


def test_manual_acquisition_is_explained(proxy: StartProxy) -> None:
    harness = proxy(BITFUSION_ACQUIRE="manual")
    reply = harness.reply(harness.cell("1"))
    assert "(acquire = manual)" in reply["traceback"][2]
    assert reply["traceback"][3] == "What to do: run `%bitfusion acquire` in a cell, then do this again."


def test_a_failed_acquisition_at_start_is_told_in_the_first_cell(proxy: StartProxy) -> None:
    harness = proxy(BITFUSION_ACQUIRE="start", BITFUSION_CLIENT="/no/such/bitfusion")
    assert harness.reply(harness.cell("1"))["ename"] == "ClientNotFound"


# -- messages that wait --------------------------------------------------------------------------------


def test_a_silent_cell_asks_for_no_gpu_and_is_answered_after_its_limit(proxy: StartProxy) -> None:
    harness = proxy(BITFUSION_SILENT_WAIT="0.2")
    cell = harness.cell("1", silent=True)
    assert harness.reply(cell)["status"] == "ok"
    assert kinds(harness.until_idle(cell)) == ["busy", "idle"]
    assert "no GPU; the next cell asks for one" in harness.printed(harness.cell("%bitfusion"))


def test_a_silent_cell_is_the_kernels_even_if_it_holds_commands_only(proxy: StartProxy) -> None:
    harness = proxy(BITFUSION_SILENT_WAIT="0.2")
    cell = harness.cell("%bitfusion", silent=True)
    assert harness.reply(cell)["status"] == "ok"
    assert kinds(harness.until_idle(cell)) == ["busy", "idle"]


def test_a_debugger_hears_that_there_is_no_kernel(proxy: StartProxy) -> None:
    harness = proxy(refuse("Error: not enough GPUs available: 0 of 1"))
    request = harness.send("debug_request", on="control", command="initialize", seq=3)
    reply = harness.reply(request, on="control")
    assert (reply["success"], reply["request_seq"]) == (False, 3)
    assert reply["message"].startswith("No GPU is free right now.\nAsked for: 1 GPU\n")


def test_what_was_held_runs_in_order_when_the_kernel_comes(proxy: StartProxy) -> None:
    harness = proxy(WAIT_FOR_EVER, BITFUSION_SILENT_WAIT="0.1")
    silent = harness.cell("x = 20", silent=True)
    harness.reply(silent)
    harness.send("comm_open", comm_id="c", target_name="none", data={})
    harness.script(GRANT)
    cell = harness.cell("print(x + 3)")
    assert harness.reply(cell)["execution_count"] == 1
    assert harness.printed(cell) == "23\n"
    assert kinds(harness.published).index("comm_close") < kinds(harness.published).index("execute_input")
    status = harness.printed(harness.cell("%bitfusion"))
    assert "running on its GPU" in status
    died = harness.cell("import os; os._exit(3)")
    error = harness.error(died)
    assert error["ename"] == "KernelDied"
    assert "the kernel process ended with exit code 3" in error["traceback"][1]
    assert harness.process.wait(scaled(5)) == 1


# -- %bitfusion ----------------------------------------------------------------------------------------


def test_commands_answer_without_a_gpu(proxy: StartProxy) -> None:
    harness = proxy(others="print('2 servers')")
    assert harness.printed(harness.cell("%bitfusion request -n 2 -p 0.5")).startswith(
        "The next cell asks for 2 GPUs × 50 %.\n"
    )
    assert harness.printed(harness.cell("%bitfusion request")) == ("The next start asks for 2 GPUs × 50 %.\n")
    assert harness.printed(harness.cell("%bitfusion log")) == "No `bitfusion run` has been started yet.\n"
    assert harness.printed(harness.cell("%bitfusion list_gpus\n%bitfusion health")) == (
        "2 servers\n2 servers\n"
    )
    assert harness.printed(harness.cell("%bitfusion help")).startswith("%bitfusion status ")
    status = harness.printed(harness.cell("%bitfusion"))
    assert status.splitlines()[:2] == [
        "Kernel    no GPU; the next cell asks for one",
        "Request   2 GPUs × 50 %",
    ]


@pytest.mark.parametrize(
    ("code", "first"),
    [
        ("%bitfusion relase", "Unknown command 'relase'. Commands: status, acquire"),
        ("%bitfusion pool x", "%bitfusion pool takes no arguments, but was given: x"),
        ("%bitfusion request -n 0", 'Invalid value "0" for -n: '),
        ("%bitfusion request two", "can't read 'two' in %bitfusion request"),
        ("%bitfusion request 'x", "can't read"),
    ],
)
def test_a_mistake_in_a_command_is_an_error_of_its_cell(proxy: StartProxy, code: str, first: str) -> None:
    harness = proxy()
    reply = harness.reply(harness.cell(code))
    assert reply["status"] == "error"
    assert reply["evalue"].startswith(first)


# -- ends ----------------------------------------------------------------------------------------------


def test_a_shutdown_on_shell_as_old_clients_send_it(proxy: StartProxy) -> None:
    harness = proxy()
    request = harness.send("shutdown_request", restart=False)
    assert harness.reply(request) == {"status": "ok", "restart": False}
    assert harness.process.wait(scaled(5)) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_proxy_and_its_wrapper(proxy: StartProxy, number: int) -> None:
    harness = proxy()
    harness.shown(harness.cell("1"))
    harness.process.send_signal(number)
    assert harness.process.wait(scaled(5)) == 128 + number


@pytest.mark.parametrize("lives_s", [0, 0.6], ids=["during the start", "later"])
def test_the_proxy_ends_with_jupyter(proxy: StartProxy, tmp_path: Path, lives_s: float) -> None:
    harness = proxy()
    harness.shown(harness.cell("1"))
    harness.process.terminate()
    harness.process.wait()
    pid_file = tmp_path / "pid"
    script = (
        "import os, subprocess, sys, time\n"
        "proxy = subprocess.Popen(sys.argv[3:], env=dict(os.environ, JPY_PARENT_PID=str(os.getpid())))\n"
        "open(sys.argv[1], 'w').write(str(proxy.pid)); time.sleep(float(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(pid_file), str(lives_s), *harness.argv],
        check=True,
        timeout=scaled(10),
        stderr=subprocess.PIPE,  # whose end is the proxy's
        text=True,
    )
    wait_until_gone(int(pid_file.read_text()))
    assert done.stderr.startswith("bitfusion_kernel: the kernel ends, because process ")
    assert done.stderr.endswith(" is gone.\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "bitfusion_kernel: no connection file was given (-f FILE)."),
        (["-f", "/no/such"], "bitfusion_kernel: connection file /no/such: No such file or directory"),
    ],
)
def test_a_proxy_that_cannot_start_says_why_on_stderr(words: list[str], line: str) -> None:
    argv = [sys.executable, "-I", "-S", str(ENTRY), *words]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=scaled(10), check=False, env=dict(os.environ)
    )
    assert done.returncode == 2
    assert done.stderr.startswith(line)
