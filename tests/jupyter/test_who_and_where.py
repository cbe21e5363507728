"""What a cell is told of its kernel, and in which surroundings one starts: beside plain ipykernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from tests.jupyter.cells import running_cell
from tests.jupyter.client import Cell
from tests.jupyter.conftest import FIRST_CELL, PLAIN, Launch
from tests.jupyter.embedded_pool import Pool
from tests.support.machine import scaled
from tests.support.namespaces import as_process_1

pytestmark = pytest.mark.long

BOTH = pytest.mark.parametrize("name", [PLAIN, FIRST_CELL])


# -- who -----------------------------------------------------------------------------------------------


@BOTH
def test_a_cell_reads_the_kernels_id_from_the_connection_files_name(launch: Launch, name: str) -> None:
    """As ipynbname, `%qtconsole` and experiment trackers do, which search the name or the whole path."""
    kernel_id = str(uuid4())
    file = os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], f"kernel-{kernel_id}.json")
    kernel = launch(name, {"connection_file": file})
    cell = kernel.run(
        "import jupyter_client, ipykernel, os, re\n"
        "file = ipykernel.get_connection_file()\n"
        "print(os.path.basename(file), re.search('kernel-(.*).json', file).group(1))\n"
        "print(jupyter_client.find_connection_file(os.path.basename(file)))\n"
        "print(jupyter_client.BlockingKernelClient(connection_file=file).load_connection_file())"
    )
    assert cell.stream() == f"{Path(file).name} {kernel_id}\n{file}\nNone\n"
    assert Path(file).stem in kernel.run("%connect_info").stream()


@pytest.mark.usefixtures("kernelspecs")  # the inner kernels look where the environment says
def test_a_kernel_that_a_cell_starts_is_shown_under_its_own_name(launch: Launch, pool: Pool) -> None:
    pool.write(gpus=3)
    kernel = launch(FIRST_CELL, env=os.environ | {"JPY_SESSION_NAME": "/home/ada/outer.ipynb"})
    kernel.connect()
    code = (
        "import os\nfrom jupyter_client.manager import start_new_kernel\n"
        f"started = [start_new_kernel(kernel_name={FIRST_CELL!r}, env=os.environ | own)"
        " for own in ({}, {'JPY_SESSION_NAME': '/home/ada/inner.ipynb'})]\n"
        "for _, client in started:\n    client.execute_interactive('1')\n"
    )
    assert kernel.run(code, 60).status == "ok"
    labels = sorted(lease["label"] for lease in pool.leases())
    kernel.run("for manager, client in started:\n    client.stop_channels()\n    manager.shutdown_kernel()")
    assert labels == ["a kernel started in outer.ipynb", "inner.ipynb", "outer.ipynb"]


# -- where ---------------------------------------------------------------------------------------------

SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]


def _behind(prefix: list[str], name: str, folder: Path, patch: pytest.MonkeyPatch) -> str:
    """The name of a copy of a kernelspec whose command has something before it."""
    spec: dict[str, Any] = KernelSpecManager().get_kernel_spec(name).to_dict()
    python = [sys.executable] if spec["argv"][0].startswith("python") else spec["argv"][:1]
    spec["argv"] = [*prefix, *python, *spec["argv"][1:]]
    copy = folder / "kernels" / "behind"
    copy.mkdir(parents=True)
    (copy / "kernel.json").write_text(json.dumps(spec))
    patch.setenv("JUPYTER_PATH", f"{folder}{os.pathsep}{os.environ.get('JUPYTER_PATH', '')}")
    return "behind"


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        pytest.param(PLAIN, SHELL, id="plain, behind a shell"),
        pytest.param(FIRST_CELL, SHELL, id="ours, behind a shell"),
        pytest.param(PLAIN, as_process_1([]), id="plain, in a pid namespace"),
        pytest.param(FIRST_CELL, as_process_1([]), id="ours, in a pid namespace"),
        # There a plain kernel takes the shell, process 1, for an init that has adopted it, and ends.
        pytest.param(FIRST_CELL, as_process_1(SHELL), id="ours, behind a shell in a pid namespace"),
    ],
)
def test_a_kernel_runs_behind_what_stands_before_its_command(
    launch: Launch,
    tmp_path: Path,
    kernelspecs: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    prefix: list[str],
) -> None:
    """As bubblewrap, apptainer and docker start it: `JPY_PARENT_PID` names nobody there."""
    kernel = launch(_behind(prefix, name, tmp_path, monkeypatch))
    assert kernel.run("print(6 * 7)").stream() == "42\n"
    cell = running_cell(kernel.client)
    kernel.interrupt()
    assert kernel.client.finish(cell).status == "error"
    assert kernel.run("print(6 * 7)").stream() == "42\n"


def _refused(cell: Cell) -> str:
    assert cell.status == "error"
    return cell.error_text


@BOTH
def test_a_kernel_whose_folder_was_renamed_is_in_the_folder(
    launch: Launch, tmp_path: Path, name: str
) -> None:
    """Between the opening of the notebook and its first cell."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    kernel = launch(name, cwd=str(before))
    kernel.connect()
    before.rename(after)
    assert kernel.run("import os; print(os.getcwd())").stream() == f"{after}\n"


def test_a_kernel_whose_folder_was_made_anew_starts_in_it(launch: Launch, tmp_path: Path) -> None:
    """A fresh clone, a job's scratch folder. A plain kernel would be left in the one that is gone."""
    folder = tmp_path / "work"
    folder.mkdir()
    kernel = launch(FIRST_CELL, cwd=str(folder))
    kernel.connect()
    folder.rmdir()
    asked = "%bitfusion list_gpus"
    assert kernel.run(asked).status == "ok"
    said = _refused(kernel.run("1"))
    assert said.startswith("FolderGone\nThe folder in which this kernel starts is gone.")
    assert f"Answer: {folder}: No such file or directory" in said
    folder.mkdir()
    (folder / "new.txt").write_text("new")
    cell = kernel.run("import os; print(os.getcwd(), open('new.txt').read())")
    assert (cell.stream(), cell.count) == (f"{folder} new\n", 1)


@pytest.mark.parametrize("variable", ["TMPDIR", "HOME", "XDG_RUNTIME_DIR"])
@BOTH
def test_a_folder_that_is_gone_by_the_first_cell_is_done_without(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, variable: str
) -> None:
    folder = tmp_path / "given"
    folder.mkdir(mode=0o700)
    kernel = launch(name, env=os.environ | {variable: str(folder)})
    kernel.connect()
    shutil.rmtree(folder)
    assert kernel.run("print(6 * 7)").stream() == "42\n"


@pytest.mark.parametrize(
    "variable", ["JPY_SESSION_NAME", "HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"]
)
@BOTH
def test_names_with_bytes_that_are_no_text_are_no_obstacle(
    launch: Launch, tmp_path: Path, name: str, variable: str
) -> None:
    """Old file names, in Latin-1."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 d")
    os.mkdir(odd, 0o700)
    env = os.environ | {variable: f"{odd}/caf\udce9.ipynb" if variable == "JPY_SESSION_NAME" else odd}
    if variable in ("HOME", "XDG_STATE_HOME"):
        env = {
            key: value for key, value in env.items() if key not in ("BITFUSION_POOL_DIR", "XDG_STATE_HOME")
        }
        env |= {variable: odd}
    kernel = launch(name, cwd=odd, env=env)
    kernel.connect()
    cell = kernel.run("import os; print(os.fsencode(os.getcwd())[-6:], 6 * 7)")
    assert cell.stream() == f"{os.fsencode(odd)[-6:]!r} 42\n"
    if name == FIRST_CELL:
        for line in ("pool", "list_gpus", "health", "", "log"):
            shown = kernel.run(f"%bitfusion {line}")
            assert shown.status == "ok", shown.error_text
            assert "Traceback" not in shown.stream()
            json.dumps(shown.stream(), ensure_ascii=False).encode()  # as notebooks are saved
        status = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from bitfusion_pool.admin.cli import main; sys.exit(main(['status']))",
            ],
            env=env,
            capture_output=True,
            timeout=scaled(20),
            check=False,
        )
        assert (status.returncode, status.stderr) == (0, b"")
