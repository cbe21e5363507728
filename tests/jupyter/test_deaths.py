"""A kernel that dies is a dead kernel for Jupyter's tools, as a plain one is; the notebook says why."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat.v4 import new_code_cell, new_notebook

from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.conftest import ALL, FIRST_CELL, OURS, PLAIN, Launch
from tests.jupyter.embedded_pool import Pool
from tests.jupyter.live_kernel import without_pytest
from tests.jupyter.tools import TOOLS, ToolRun

KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
KILL_WRAPPER = (
    "import os, signal, time\n"
    "launcher = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()\n"
    "os.kill(int(launcher[1]), signal.SIGKILL)\ntime.sleep(60)"
)
SAYS_SIGKILL = "Answer: the kernel process was killed by SIGKILL"
NEXT_STEP = (
    "What to do: restart the kernel, unless Jupyter has done that already, "
    "and run the cells again from the first one."
)


def _run(kernel: str, *cells: str, **options: Any) -> Any:
    """The notebook after nbclient has run it to its kernel's death.

    When nbclient sees that, it drops what it has not read. One that stood still just then is run again.
    """
    for _ in range(3):
        notebook = new_notebook(cells=[new_code_cell(code) for code in cells])
        client = NotebookClient(notebook, kernel_name=kernel, timeout=60, **options)
        with pytest.raises(DeadKernelError):
            client.execute(env=without_pytest(os.environ))
        if kernel == PLAIN or _tells_an_error(notebook):
            break
    return notebook.cells


def _tells_an_error(notebook: Any) -> bool:
    return any(
        output["output_type"] == "error" for cell in notebook.cells for output in cell.get("outputs", [])
    )


@pytest.mark.usefixtures("kernelspecs")
@pytest.mark.parametrize("allow_errors", [False, True])
@pytest.mark.parametrize("kernel", ALL)
def test_nbclient_sees_a_dead_kernel_and_stops(pool: Pool, kernel: str, allow_errors: bool) -> None:
    before, died, behind = _run(kernel, "print('before')", KILL, "print('never')", allow_errors=allow_errors)
    assert [output["text"] for output in before.outputs] == ["before\n"]
    assert behind.outputs == []
    if kernel == PLAIN:
        assert died.outputs == []
    else:
        (told,) = died.outputs
        assert (told["output_type"], told["ename"], told["evalue"]) == (
            *("error", "KernelDied"),
            "The kernel has died.",
        )
        assert told["traceback"][1].startswith(SAYS_SIGKILL)
        assert told["traceback"][2] == NEXT_STEP
    pool.wait_until_free(2)
    wait_for_no_process(pool, 2)


@pytest.mark.usefixtures("kernelspecs")
@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        (KILL_WRAPPER, "WrapperDied", r"`bitfusion run` was killed by SIGKILL"),
        ("import os\nos._exit(3)", "KernelDied", "the kernel process ended with exit code 3"),
        ("import os\nos._exit(0)", "KernelDied", "the kernel process ended with exit code 0"),
        ("import os\nos.abort()", "KernelDied", "the kernel process was killed by SIGABRT"),
    ],
)
def test_every_death_is_one_for_nbclient(pool: Pool, code: str, name: str, words: str) -> None:
    (died,) = _run(FIRST_CELL, code, allow_errors=True)
    (told,) = died.outputs
    assert told["ename"] == name
    assert any(words in line for line in told["traceback"]), told["traceback"]
    assert told["traceback"][-1] == NEXT_STEP
    wait_for_no_process(pool, 2)


@pytest.mark.usefixtures("kernelspecs")
@pytest.mark.parametrize(
    "tool", [pytest.param(tool, marks=[pytest.mark.long] * (tool != "papermill")) for tool in TOOLS]
)
def test_batch_tools_say_that_the_kernel_died(pool: Pool, tmp_path: Path, tool: str) -> None:
    run = ToolRun(tool, FIRST_CELL, tmp_path, KILL, "print('never')")
    text = run.finish(45)
    assert run.process.returncode != 0
    assert "DeadKernelError" in text
    assert "CellExecutionError" not in text
    wait_for_no_process(pool, 3)


@pytest.mark.usefixtures("kernelspecs")
def test_papermill_keeps_the_reason_in_its_output(pool: Pool, tmp_path: Path) -> None:
    for _ in range(3):  # see _run
        run = ToolRun("papermill", FIRST_CELL, tmp_path, KILL, "print('never')")
        run.finish(45)
        saved = nbformat.read(run.target, as_version=4)
        if _tells_an_error(saved):
            break
    texts = [
        line for cell in saved.cells for output in cell.get("outputs", []) for line in output["traceback"]
    ]
    assert any(line.startswith(SAYS_SIGKILL) for line in texts)


@pytest.mark.parametrize("name", OURS)
def test_a_dead_kernel_replies_to_nothing(launch: Launch, name: str) -> None:
    kernel = launch(name)
    kernel.run("1")
    died, behind, command = kernel.send_together(KILL, "print('never')", "%bitfusion")
    kernel.client.pump(lambda: died.of("error"), 10, "the reason", lambda: died.kinds)
    kernel.wait_for_end(5)
    kernel.client.settle(0.5)
    assert [cell.reply for cell in (died, behind, command)] == [None, None, None]
    shown = [kind for kind in died.kinds if kind not in ("busy", "execute_input")]
    assert shown == ["error"], "the kernel may die before its own messages have left; it is never idle again"
    assert (behind.kinds, command.kinds) == ([], [])
    assert re.sub(r"\x1b\[[\d;]*m", "", died.error["traceback"][0]) == "KernelDied: The kernel has died."
