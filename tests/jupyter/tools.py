"""papermill, nbconvert and jupyter execute as processes, each at work on one notebook."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbformat.v4 import new_code_cell, new_notebook

from tests.jupyter.live_kernel import without_pytest
from tests.support.machine import scaled

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


LIMITS = {
    "papermill": ("--execution-timeout={cell}", "--start-timeout={start}"),
    "nbconvert": ("--ExecutePreprocessor.timeout={cell}", "--ExecutePreprocessor.startup_timeout={start}"),
    "jupyter execute": ("--timeout={cell}", "--startup_timeout={start}"),
}
"""The options that limit the seconds of each cell and of the kernel's start."""


def limits(tool: str, *, cell: int, start: int) -> list[str]:
    """The options of one tool."""
    return [option.format(cell=cell, start=start) for option in LIMITS[tool]]


class ToolRun:
    """One tool at work on one notebook; its output is read until the pipe's end."""

    def __init__(
        self,
        tool: str,
        kernel: str,
        folder: Path,
        *cells: str,
        options: Sequence[str] = (),
        **settings: str,
    ) -> None:
        source, self.target = folder / f"{tool}.ipynb", folder / f"{tool} done.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(code) for code in cells]), source)
        command = TOOLS[tool](str(source), str(self.target), kernel)
        scripts = Path(sys.executable).parent
        self.process = subprocess.Popen(
            [str(scripts / command[0]), *command[1:], *options],
            cwd=folder,
            env=without_pytest(os.environ | settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.text = ""
        """What it has said so far."""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def finish(self, limit_s: float) -> str:
        """The tool's own output, once it has ended and its pipe too."""
        self.process.wait(scaled(limit_s))
        self._reader.join(scaled(1))
        assert not self._reader.is_alive(), "somebody still holds the tool's output pipe"
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.text

    def outputs(self) -> list[Any]:
        """Of each cell; what a kernel sent in two pieces, between a word and its end of line, is one."""
        notebook, _ = CoalesceStreamsPreprocessor().preprocess(nbformat.read(self.target, as_version=4), {})
        return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
