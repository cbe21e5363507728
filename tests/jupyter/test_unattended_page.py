"""docs/how-to/run-unattended.md, and the kernels of docs/how-to/install-the-kernel.md, in a new home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.jupyter.live_kernel import without_pytest
from tests.support.documents import ROOT, shell_blocks
from tests.support.machine import scaled
from tests.support.run_blocks import ran

INSTALL, UNATTENDED = "docs/how-to/install-the-kernel.md", "docs/how-to/run-unattended.md"


@pytest.mark.apart
@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.runs(f"{INSTALL}#Several sizes side by side", UNATTENDED)
def test_the_commands_of_both_pages(pool_folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "pip").symlink_to("/bin/true")  # the kernel is in this environment
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    environment |= {"HOME": str(home), "PATH": f"{home}:{Path(sys.executable).parent}:/usr/bin:/bin"}

    def typed(commands: str) -> str:
        ran(commands)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=home,
            env=without_pytest(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=scaled(120),
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    yourself, several = shell_blocks((ROOT / INSTALL).read_text(encoding="utf-8"))
    typed(yourself)
    typed(several)
    specs = json.loads(typed("jupyter kernelspec list --json"))["kernelspecs"]
    assert {"bitfusion", "half-gpu", "two-gpus", "eight-gib"} <= specs.keys()
    assert specs["two-gpus"]["spec"]["display_name"].startswith("Two GPUs")
    source = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("!nvidia-smi")])
    nbformat.write(source, home / "in.ipynb")
    for block in shell_blocks((ROOT / UNATTENDED).read_text(encoding="utf-8")):
        (home / "out.ipynb").unlink(missing_ok=True)
        typed(block)
        (cell,) = nbformat.read(home / "out.ipynb", as_version=4).cells
        assert "of 16160" in str(cell.outputs) or "16160MiB" in str(cell.outputs), cell.outputs
