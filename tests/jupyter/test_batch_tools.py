"""papermill, nbconvert and jupyter execute run a notebook in this kernel with one command."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.jupyter.chain import wait_for_no_process
from tests.jupyter.conftest import FIRST_CELL, OURS, START
from tests.jupyter.embedded_pool import MEMORY_MIB, Pool
from tests.jupyter.live_kernel import without_pytest
from tests.support.machine import scaled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kernelspecs")

SHOW_SHARE = (
    "import json, os\nprint([d['memory_mib'] for d in json.loads(os.environ['BITFUSION_POOL_DEVICES'])])"
)

TOOLS = {
    "papermill": lambda source, target, kernel: [
        "papermill",
        "-k",
        kernel,
        "--no-progress-bar",
        source,
        target,
    ],
    "nbconvert": lambda source, target, kernel: [
        *("jupyter", "nbconvert", "--to", "notebook", "--execute", "--output", target),
        *(f"--ExecutePreprocessor.kernel_name={kernel}", source),
    ],
    "jupyter execute": lambda source, target, kernel: [
        *("jupyter", "execute", f"--kernel_name={kernel}", f"--output={target}", source),
    ],
}


class Run:
    """One tool at work on one notebook; its output is read until the pipe's end."""

    def __init__(self, tool: str, kernel: str, folder: Path, *cells: str, **settings: str) -> None:
        source, self.target = folder / f"{tool}.ipynb", folder / f"{tool} done.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(code) for code in cells]), source)
        command = TOOLS[tool](str(source), str(self.target), kernel)
        scripts = Path(sys.executable).parent
        self.process = subprocess.Popen(
            [str(scripts / command[0]), *command[1:]],
            cwd=folder,
            env=without_pytest(os.environ | settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self._text = self.process.stdout.read()

    def finish(self, limit_s: float) -> str:
        """The tool's own output, once it has ended and its pipe too."""
        self.process.wait(scaled(limit_s))
        self._reader.join(scaled(1))
        assert not self._reader.is_alive(), "somebody still holds the tool's output pipe"
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self._text

    def outputs(self) -> list[Any]:
        return [
            cell.outputs
            for cell in nbformat.read(self.target, as_version=4).cells
            if cell.cell_type == "code"
        ]


@pytest.mark.parametrize("kernel", OURS)
@pytest.mark.parametrize("tool", TOOLS)
def test_size_comes_from_the_environment(pool: Pool, tmp_path: Path, tool: str, kernel: str) -> None:
    run = Run(tool, kernel, tmp_path, SHOW_SHARE, "print('end')", BITFUSION_PARTIAL="0.25")
    text = run.finish(45)
    assert run.process.returncode == 0, text
    assert [outputs[-1]["text"] for outputs in run.outputs()] == [f"[{MEMORY_MIB // 4}]\n", "end\n"]
    assert [len(outputs) for outputs in run.outputs()] == [1, 1]
    pool.wait_until_free(2)
    wait_for_no_process(pool, 3)


@pytest.mark.parametrize("tool", TOOLS)
def test_saved_notebook_holds_no_trace_of_a_wait(pool: Pool, tmp_path: Path, tool: str) -> None:
    with pool.held():
        run = Run(tool, FIRST_CELL, tmp_path, "x = 1", "print(x)\n'result'")
        wait_until(pool.waiting, "the tool's kernel in the queue", 20)
        time.sleep(1.5)  # until the notice is shown
    text = run.finish(30)
    assert run.process.returncode == 0, text
    silent, speaking = run.outputs()
    assert silent == []
    assert [output["output_type"] for output in speaking] == ["stream", "execute_result"]
    assert "Waiting" not in run.target.read_text()


@pytest.mark.parametrize("tool", ["papermill", "nbconvert"])
def test_error_of_the_pool_is_the_tools_error(pool: Pool, tmp_path: Path, tool: str) -> None:
    run = Run(tool, FIRST_CELL, tmp_path, "print('never')", BITFUSION_GPUS="3")
    text = run.finish(45)
    assert run.process.returncode != 0
    for words in ("3 GPUs", "What to do"):
        assert words in text
    wait_for_no_process(pool, 3)


@pytest.mark.long
@pytest.mark.timeout(150)
def test_gpu_that_comes_after_75_s(pool: Pool, tmp_path: Path) -> None:
    """Beyond every 60 s limit of these tools; all at once on one GPU, each with a quarter."""
    begin = time.monotonic()
    with pool.held():
        runs = [
            Run(tool, kernel, tmp_path, SHOW_SHARE, "'end'", BITFUSION_PARTIAL="0.25")
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
