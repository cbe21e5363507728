"""Cells behave as in the plain kernel: the first one, the thousandth, failing ones, silent ones."""

from __future__ import annotations

import base64
import os
import time
from pathlib import Path

import pytest

from tests.jupyter.cells import without_notice
from tests.jupyter.conftest import FIRST_CELL, PLAIN, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import LiveKernel
from tests.support.processes import wait_until_gone


def test_first_cell_is_in_1_with_its_messages_in_order(kernel: LiveKernel) -> None:
    cell = kernel.run("print('hello')\n6 * 7")
    assert (cell.status, cell.count, cell.stream(), cell.result) == ("ok", 1, "hello\n", "42")
    assert without_notice(cell.kinds) == ["busy", "execute_input", "stream", "execute_result", "idle"]
    assert [output["output_type"] for output in cell.saved_outputs()] == ["stream", "execute_result"]
    assert kernel.run("7").count == 2


def test_cells_sent_at_once_run_in_order(kernel: LiveKernel) -> None:
    cells = [kernel.client.send(f"print({number})") for number in range(20)]
    kernel.client.finish_all(*cells)
    assert [cell.stream() for cell in cells] == [f"{number}\n" for number in range(20)]
    assert [cell.count for cell in cells] == list(range(1, 21))


def test_error_has_its_traceback_and_the_kernel_lives(kernel: LiveKernel) -> None:
    cell = kernel.run("def inner():\n    raise ValueError('told you')\ninner()")
    assert cell.status == "error"
    assert (cell.error["ename"], cell.error["evalue"]) == ("ValueError", "told you")
    assert any("inner" in line for line in cell.error["traceback"])
    assert kernel.run("1").result == "1"


def test_cells_behind_a_failed_one_are_aborted(kernel: LiveKernel) -> None:
    failing, *behind = kernel.send_together("import time; time.sleep(0.3); 1/0", *["print('never')"] * 3)
    kernel.client.finish_all(failing, *behind)
    assert failing.status == "error"
    for cell in behind:
        assert cell.status == "aborted"
        assert cell.reply is not None
        assert cell.reply["metadata"]["status"] == "aborted"
        assert cell.kinds == ["busy", "idle"]
    assert kernel.run("print('again')").stream() == "again\n"


def test_cells_behind_go_on_without_stop_on_error(kernel: LiveKernel) -> None:
    failing = kernel.client.send("1/0", stop_on_error=False)
    behind = kernel.client.send("print('still')")
    kernel.client.finish_all(failing, behind)
    assert (failing.status, behind.status, behind.stream()) == ("error", "ok", "still\n")


def test_history_is_not_kept_when_not_asked_for(kernel: LiveKernel) -> None:
    hidden = kernel.run("print('hidden')", store_history=False)
    assert (hidden.status, hidden.stream()) == ("ok", "hidden\n")
    assert hidden.of("execute_input"), "only silent cells have no execute_input"
    assert kernel.run("1").count == 1


def test_silent_cells_run_before_the_next_one_and_count_nothing(kernel: LiveKernel) -> None:
    silent = kernel.client.send("quiet = 5; print('shout')", silent=True, store_history=False)
    cell = kernel.run("quiet")
    kernel.client.finish(silent)
    assert (silent.status, cell.count, cell.result) == ("ok", 1, "5")
    assert not silent.of("execute_input", "execute_result")


def test_lonely_silent_cell_is_answered_without_a_gpu(
    launch: Launch, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BITFUSION_SILENT_WAIT", "1")
    kernel = launch(FIRST_CELL)
    begin = time.monotonic()
    silent = kernel.client.send("later = 1", silent=True, store_history=False)
    kernel.client.finish(silent, 5)
    assert time.monotonic() - begin > 0.5
    assert not pool.leases()
    assert kernel.run("1").count == 1


def test_user_expressions_are_evaluated(kernel: LiveKernel) -> None:
    cell = kernel.run("x = 20", user_expressions={"twice": "x * 2", "bad": "nowhere"})
    assert cell.reply is not None
    values = cell.reply["content"]["user_expressions"]
    assert values["twice"]["data"]["text/plain"] == "40"
    assert values["bad"]["ename"] == "NameError"


def test_rich_output_arrives_whole(kernel: LiveKernel) -> None:
    pixel = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    cell = kernel.run(
        "from IPython.display import HTML, Image, JSON, Latex, display\n"
        "display(HTML('<b>bold</b>'), Latex('$x$'), JSON({'a': [1]}))\n"
        f"Image({pixel!r})"
    )
    shown = [output["data"] for output in cell.saved_outputs()]
    assert shown[0]["text/html"] == "<b>bold</b>"
    assert shown[1]["text/latex"] == "$x$"
    assert shown[2]["application/json"] == {"a": [1]}
    assert base64.b64decode(shown[3]["image/png"]) == pixel


def test_displays_are_updated_in_place(kernel: LiveKernel) -> None:
    cell = kernel.run("handle = display('one', display_id='mine')")
    assert cell.of("display_data")[-1]["content"]["transient"]["display_id"] == "mine"
    later = kernel.run("handle.update('two')")
    update = later.of("update_display_data")[0]["content"]
    assert (update["transient"]["display_id"], update["data"]["text/plain"]) == ("mine", "'two'")


def test_output_is_cleared(kernel: LiveKernel) -> None:
    cell = kernel.run(
        "from IPython.display import clear_output\nprint('old')\nclear_output(wait=True)\nprint('new')"
    )
    assert cell.of("clear_output")[-1]["content"]["wait"] is True
    assert [output["text"] for output in cell.saved_outputs()] == ["new\n"]


def test_output_of_threads_and_child_processes_is_shown(kernel: LiveKernel) -> None:
    cell = kernel.run(
        "import subprocess, sys, threading\n"
        "thread = threading.Thread(target=print, args=('from a thread',)); thread.start(); thread.join()\n"
        "print('to stderr', file=sys.stderr)\n"
        "!echo from a shell\n"
        "_ = subprocess.run(['echo', 'from a child'])"
    )
    text = cell.stream()
    assert "from a thread\n" in text
    assert "from a shell" in text
    assert cell.stream("stderr") == "to stderr\n"
    # ipykernel reads the file descriptors in a thread: what a child wrote may come after the cell's end
    kernel.client.pump(lambda: "from a child" in cell.stream(), 5, "the child's output", cell.stream)


def test_much_output_arrives_whole_and_in_order(kernel: LiveKernel) -> None:
    cell = kernel.run("for number in range(20000):\n    print(f'{number:07d}', 'x' * 490)", limit_s=60)
    lines = cell.stream().splitlines()
    assert len(lines) == 20000
    assert [int(line[:7]) for line in lines] == list(range(20000))


def test_large_cell_and_large_display_pass(kernel: LiveKernel) -> None:
    code = "text = '''" + "y" * 3_000_000 + "'''\nprint(len(text))\ndisplay({'text/plain': text}, raw=True)"
    cell = kernel.run(code)
    assert cell.stream() == "3000000\n"
    assert len(cell.of("display_data")[-1]["content"]["data"]["text/plain"]) == 3_000_000


def test_interrupt_ends_the_running_cell_and_its_children(kernel: LiveKernel) -> None:
    kernel.run("1")
    cell = kernel.client.send(
        "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\n"
        "print(child.pid, flush=True)\nchild.wait()"
    )
    kernel.client.pump(lambda: cell.stream(), 10, "the child's pid")
    kernel.interrupt()
    kernel.client.finish(cell, 2)
    assert cell.error["ename"] == "KeyboardInterrupt"
    wait_until_gone(int(cell.stream()))
    assert kernel.run("2").result == "2"


def test_restart_forgets_the_variables(kernel: LiveKernel) -> None:
    kernel.run("x = 1")
    kernel.restart()
    cell = kernel.run("x")
    assert (cell.error["ename"], cell.count) == ("NameError", 1)


def test_forced_restart_forgets_the_variables(kernel: LiveKernel) -> None:
    kernel.run("x = 1")
    kernel.restart(now=True)
    cell = kernel.run("x")
    assert (cell.error["ename"], cell.count) == ("NameError", 1)


def test_shutdown_request_of_a_client_ends_the_kernel(kernel: LiveKernel, pool: Pool) -> None:
    kernel.run("1")
    assert kernel.client.request("shutdown_request", {"restart": False}, "control")["restart"] is False
    kernel.wait_for_end(5)
    pool.wait_until_free(2)


def test_leaving_python_ends_the_kernel(kernel: LiveKernel, pool: Pool) -> None:
    """`exit` in a cell only asks the frontend to end it."""
    cell = kernel.run("exit")
    assert cell.reply is not None
    assert cell.reply["content"]["payload"][0]["source"] == "ask_exit"
    kernel.stop()
    pool.wait_until_free(2)


def test_folder_and_environment_are_those_the_client_gave(launch: Launch, tmp_path: Path) -> None:
    for name in (PLAIN, FIRST_CELL):
        folder = tmp_path / f"work of {name}"
        folder.mkdir()
        kernel = launch(
            name, cwd=str(folder), env=os.environ | {"MY_SETTING": "a b=c", "JPY_SESSION_NAME": "n.ipynb"}
        )
        kernel.connect()
        cell = kernel.run(
            "import os\nprint(os.getcwd(), os.environ['MY_SETTING'], os.environ['JPY_SESSION_NAME'])"
        )
        assert cell.stream() == f"{folder} a b=c n.ipynb\n"


def test_arguments_of_the_kernel_pass_through(kernel: LiveKernel, launch: Launch) -> None:
    other = launch(
        kernel.name,
        extra_arguments=["--HistoryManager.hist_file=:memory:", "--IPKernelApp.exec_lines=given = 5"],
    )
    other.connect()
    if kernel.name != PLAIN:
        kernel.stop()  # the pool has one GPU
    assert other.run("get_ipython().history_manager.hist_file, given").result == "(':memory:', 5)"


def test_imports_come_from_the_kernels_environment(kernel: LiveKernel) -> None:
    """The proxy runs with `-I -S`; the kernel does not."""
    cell = kernel.run(
        "import sys\nprint(sys.flags.isolated, sys.flags.no_site)\nimport matplotlib_inline, site"
    )
    assert (cell.status, cell.stream()) == ("ok", "0 0\n")
