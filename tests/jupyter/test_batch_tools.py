"""papermill, nbconvert, jupyter execute and nbclient run a notebook in this kernel with one command."""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path

import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat.v4 import new_code_cell, new_notebook

from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.conftest import FIRST_CELL, OURS, START
from tests.jupyter.embedded_pool import MEMORY_MIB, Pool
from tests.jupyter.live_kernel import without_pytest
from tests.jupyter.tools import TOOLS, ToolRun, limits
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kernelspecs")

PAPERMILL_AND_OTHERS = [
    pytest.param(tool, marks=[] if tool == "papermill" else pytest.mark.long) for tool in TOOLS
]
ELAPSED = r"(?:\d+ min )?\d+ s"
SHOW_SHARE = (
    "import json, os\nprint([d['memory_mib'] for d in json.loads(os.environ['BITFUSION_POOL_DEVICES'])])"
)


@pytest.mark.parametrize("kernel", OURS)
@pytest.mark.parametrize("tool", PAPERMILL_AND_OTHERS)
def test_size_comes_from_the_environment(pool: Pool, tmp_path: Path, tool: str, kernel: str) -> None:
    run = ToolRun(tool, kernel, tmp_path, SHOW_SHARE, "print('end')", BITFUSION_PARTIAL="0.25")
    text = run.finish(45)
    assert run.process.returncode == 0, text
    assert [outputs[-1]["text"] for outputs in run.outputs()] == [f"[{MEMORY_MIB // 4}]\n", "end\n"]
    assert [len(outputs) for outputs in run.outputs()] == [1, 1]
    pool.wait_until_free(2)
    wait_for_no_process(pool, 3)


@pytest.mark.parametrize("tool", PAPERMILL_AND_OTHERS)
def test_saved_notebook_holds_no_trace_of_a_wait(pool: Pool, tmp_path: Path, tool: str) -> None:
    waits = rf"^bitfusion_kernel: a cell has waited for 1 GPU for {ELAPSED} \(position 1 of 1; held by "
    with pool.held():
        run = ToolRun(tool, FIRST_CELL, tmp_path, "x = 1", "print(x)\n'result'")
        wait_until(lambda: re.search(waits, run.text, re.MULTILINE), lambda: run.text, 20)
    text = run.finish(30)
    assert run.process.returncode == 0, text
    silent, speaking = run.outputs()
    assert silent == []
    assert [output["output_type"] for output in speaking] == ["stream", "execute_result"]
    assert "Waiting" not in run.target.read_text()


@pytest.mark.long
@pytest.mark.parametrize("interrupt", [False, True], ids=["shuts down", "interrupts"])
def test_a_wait_that_nbclient_ends_leaves_why_and_no_display(pool: Pool, interrupt: bool) -> None:
    """Its time limit for a cell counts the wait, too; then it shuts the kernel down, or interrupts first."""
    notebook = new_notebook(cells=[new_code_cell("print('never')")])
    client = NotebookClient(
        notebook, kernel_name=FIRST_CELL, timeout=math.ceil(scaled(3)), interrupt_on_timeout=interrupt
    )
    with pool.held(), pytest.raises(CellExecutionError if interrupt else CellTimeoutError):
        client.execute(env=without_pytest(os.environ))
    told = [(output["output_type"], output.get("ename")) for output in notebook.cells[0].outputs]
    assert told == [("error", "WaitCancelled")]
    wait_for_no_process(pool, 5)


@pytest.mark.parametrize("tool", ["papermill", pytest.param("nbconvert", marks=pytest.mark.long)])
def test_error_of_the_pool_is_the_tools_error(pool: Pool, tmp_path: Path, tool: str) -> None:
    run = ToolRun(tool, FIRST_CELL, tmp_path, "print('never')", BITFUSION_GPUS="3")
    text = run.finish(45)
    assert run.process.returncode != 0
    for words in ("3 GPUs", "What to do"):
        assert words in text
    wait_for_no_process(pool, 3)


COUNTS_THE_WAIT = "With BITFUSION_ACQUIRE=start_and_wait the limit for the kernel's start counts it instead."


@pytest.mark.parametrize("tool", ["papermill", pytest.param("nbconvert", marks=pytest.mark.long)])
def test_end_of_a_cells_limit_while_it_waits_is_explained(pool: Pool, tmp_path: Path, tool: str) -> None:
    limit = math.ceil(scaled(3))
    with pool.held("boss.ipynb") as holder:
        run = ToolRun(
            tool, FIRST_CELL, tmp_path, "print('never')", options=limits(tool, cell=limit, start=600)
        )
        text = run.finish(60)
        wait_for_no_process(pool, 3, holder=holder.pid)
    assert run.process.returncode != 0
    assert f"A cell timed out while it was being executed, after {limit} seconds." in text
    assert re.search(rf"while a cell waited, after {ELAPSED} of waiting for 1 GPU \(.*boss\.ipynb", text), (
        text
    )
    assert COUNTS_THE_WAIT in text
    if tool == "papermill":  # the others save nothing
        ((shown,),) = run.outputs()
        assert "the limit for the kernel's start counts the wait instead." in shown["traceback"][-1]


@pytest.mark.long
@pytest.mark.parametrize("tool", PAPERMILL_AND_OTHERS)
def test_wait_in_the_kernels_start_leaves_a_cell_its_whole_limit(
    pool: Pool, tmp_path: Path, tool: str
) -> None:
    limit = math.ceil(scaled(3))
    given = limits(tool, cell=limit, start=600)
    with pool.held():
        run = ToolRun(
            tool, FIRST_CELL, tmp_path, "print('ran')", options=given, BITFUSION_ACQUIRE="start_and_wait"
        )
        wait_until(pool.waiting, "the tool's kernel in the queue", 20)
        time.sleep(limit + 1)
    text = run.finish(60)
    assert run.process.returncode == 0, text
    assert [[output["text"] for output in outputs] for outputs in run.outputs()] == [["ran\n"]]
    assert "the kernel is ready when it has 1 GPU (position 1 of 1; held by " in text
    assert "shut down" not in text


@pytest.mark.long
@pytest.mark.parametrize("tool", ["papermill", pytest.param("jupyter execute", marks=pytest.mark.long)])
def test_end_of_the_starts_limit_while_it_waits_is_explained(pool: Pool, tmp_path: Path, tool: str) -> None:
    limit = math.ceil(scaled(2))
    given = limits(tool, cell=600, start=limit)
    with pool.held("boss.ipynb") as holder:
        run = ToolRun(tool, FIRST_CELL, tmp_path, "1", options=given, BITFUSION_ACQUIRE="start_and_wait")
        text = run.finish(60)
        wait_for_no_process(pool, 3, holder=holder.pid)
    assert run.process.returncode != 0
    assert f"Kernel didn't respond in {limit} seconds" in text
    waited = rf"shut down before the kernel was ready, after {ELAPSED} of waiting for 1 GPU \(.*boss\.ipynb"
    assert re.search(waited, text), text
    assert "--start-timeout of papermill, startup_timeout of nbconvert and jupyter execute." in text


def test_end_of_the_pools_limit_in_the_kernels_start_fails_the_first_cell(pool: Pool, tmp_path: Path) -> None:
    with pool.held():
        run = ToolRun(
            *("papermill", FIRST_CELL, tmp_path, "print('never')"),
            options=limits("papermill", cell=600, start=600),
            BITFUSION_ACQUIRE="start_and_wait",
            BITFUSION_TIMEOUT="2s",
        )
        text = run.finish(60)
    assert run.process.returncode != 0
    assert "No GPU became free in time." in text


@pytest.mark.long
def test_cell_that_a_tool_interrupts_at_its_limit_says_what_counts_the_wait(
    pool: Pool, tmp_path: Path
) -> None:
    given = limits("nbconvert", cell=math.ceil(scaled(2)), start=600)
    interrupts = "--ExecutePreprocessor.interrupt_on_timeout=True"
    with pool.held():
        run = ToolRun("nbconvert", FIRST_CELL, tmp_path, "print('never')", options=[*given, interrupts])
        text = run.finish(60)
    assert run.process.returncode != 0
    assert "Waiting for GPUs was cancelled." in text
    assert "If a time limit for cells has ended it: with BITFUSION_ACQUIRE=start_and_wait" in text


@pytest.mark.long
@pytest.mark.timeout(150)
def test_gpu_that_comes_after_75_s(pool: Pool, tmp_path: Path) -> None:
    """Beyond every 60 s limit of these tools; all at once on one GPU, each with a quarter."""
    begin = time.monotonic()
    with pool.held():
        runs = [
            ToolRun(tool, kernel, tmp_path, SHOW_SHARE, "'end'", BITFUSION_PARTIAL="0.25")
            for tool, kernel in zip(TOOLS, (FIRST_CELL, START, FIRST_CELL), strict=True)
        ]
        time.sleep(75 - (time.monotonic() - begin))
        assert len(pool.waiting()) == len(runs)
        assert all(run.process.poll() is None for run in runs)
    for run in runs:
        text = run.finish(30)
        assert run.process.returncode == 0, text
        share, end = run.outputs()
        assert share[0]["text"] == f"[{MEMORY_MIB // 4}]\n"
        assert (len(share), len(end)) == (1, 1)
    wait_for_no_process(pool, 3)
