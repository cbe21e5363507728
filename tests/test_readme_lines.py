"""The first lines of README.md and of the first tutorial, typed by a new user with an empty home.

Nothing is on PATH. Get it, install, use, uninstall, `make clean`; not `make demo` and `make test`, which
install for minutes. The user is an account of a machine of the test's own (root), and `pip` asks the
package index.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from bitfusion_client.text_table import box
from tests.pool.service.own_machine import NEEDS, OwnMachine
from tests.support.documents import ROOT, shell_blocks
from tests.support.run_blocks import ran

pytestmark = [*NEEDS, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

README = (ROOT / "README.md").read_text(encoding="utf-8")
USER = "ada"
MARK = "\x1e"
TUTORIAL = (ROOT / "docs" / "tutorials" / "this-machine.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"(?ms)^##+ ([^\n]+)\n(.*?)(?=^##|\Z)", README + TUTORIAL))
ADDRESS = "/opt/repository"
GET = shell_blocks(SECTIONS["Get it"])[0].replace("ADDRESS", ADDRESS)
NOTHING_YET = re.findall(
    r"`([^`]+)`", SECTIONS["1. Install"].partition("these make one:")[2].partition(")")[0]
)
(INSTALL,) = shell_blocks(SECTIONS["1. Install"])
(BATCH,) = shell_blocks(SECTIONS["4. Give the GPU back"])
CELLS = re.findall(r"(?m)^\| `([^`]+)` \|", SECTIONS["3. Run a cell"])
STATUS, CLEAN = "bitfusion-pool status", "make clean"
(UNINSTALL,) = shell_blocks(SECTIONS["Uninstall"])

CAME = {
    "git clone": "Cloning into 'kubeflow-bitfusion'",
    "pip install jupyterlab": "Successfully installed",
    "pip install .": "Successfully installed kubeflow-bitfusion",
    "bitfusion-kernel install": "Bitfusion",
    "%bitfusion": "no GPU; the next cell asks for one",
    "%bitfusion request": "The next cell asks for 2 GPUs × 50 %",
    "%bitfusion release": "2 GPUs × 50 % given back",
    "%bitfusion pool": "16160 of 16160 MiB",
    "!bitfusion run": "trained on 1",
    "BITFUSION_GPUS=1": "Executing",
    STATUS: "Nobody holds a GPU",
    "bitfusion-kernel remove": "bitfusion",
    "pip uninstall": "Successfully uninstalled kubeflow-bitfusion",
}
"""What is printed for the line that begins so, at the least; of those that fit, the longest counts."""

TRAIN = "import os\nprint('trained on', len(os.environ['CUDA_VISIBLE_DEVICES'].split(',')))\n"
TYPE_CELLS = f"""
import json, sys
from jupyter_client.manager import start_new_kernel

def show(message):
    if message["msg_type"] not in ("status", "execute_input"):
        content = message["content"]
        print(content.get("text") or content.get("data", content).get("text/plain", content))

manager, client = start_new_kernel(kernel_name="bitfusion")
for cell in json.loads(sys.argv[1]):
    if cell.endswith("release"):
        client.execute_interactive("6 * 7", output_hook=lambda message: None)
    print("{MARK}" + cell)
    yes = lambda message: client.input("y")
    client.execute_interactive(cell, allow_stdin=True, stdin_hook=yes, timeout=60, output_hook=show)
client.stop_channels()
manager.shutdown_kernel()
"""
"""As a notebook does, by a person who says yes."""


@pytest.fixture
def machine() -> Iterator[OwnMachine]:
    folder = Path(tempfile.mkdtemp(prefix="bfr-", dir="/tmp"))
    folder.chmod(0o755)
    made = OwnMachine(folder)
    made.add_user(USER)
    try:
        _publish(folder / ADDRESS[1:])
        made.root(f"chown --recursive {USER} {ADDRESS}")
        yield made
    finally:
        made.end()
        shutil.rmtree(folder)


def _publish(folder: Path) -> None:
    """What this checkout has, as a repository."""
    files = subprocess.check_output(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT
    )
    folder.mkdir()
    subprocess.run(["cp", "--parents", "-t", folder, *files.decode().split("\0")[:-1]], cwd=ROOT, check=True)
    for words in ("init -q", "add -A", "-c user.name=x -c user.email=x@x commit -qm all"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)


def typed(lines: list[str]) -> str:
    """The lines, each told before it runs and answered yes."""
    return "\n".join(f"printf '{MARK}%s\\n' {json.dumps(each)}\n{{ {each}\n}} <<< y" for each in lines) + "\n"


def came(printed: str) -> dict[str, str]:
    """What each line has printed."""
    return dict(part.split("\n", 1) for part in printed.split(MARK)[1:])


@pytest.mark.runs(
    *("README.md#Get it#git clone", "README.md#Get it#pip install"),
    *("docs/tutorials/this-machine.md", "docs/how-to/install-the-kernel.md#For yourself"),
    "docs/how-to/run-unattended.md#Run notebooks unattended",
)
def test_a_new_user_installs_uses_and_uninstalls(machine: OwnMachine) -> None:
    assert f"`{STATUS}`" in TUTORIAL
    assert shell_blocks(SECTIONS["Get it"])[1] == INSTALL
    assert f"`{CLEAN}` removes all" in README
    home = machine.base / "home" / USER
    before = {path.name for path in home.iterdir()}
    cells = f"python - '{json.dumps(CELLS)}' <<'END'\n{TYPE_CELLS}\nEND\n"
    notebook = json.dumps(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("!nvidia-smi")]))
    files = f"cat > in.ipynb <<'END'\n{notebook}\nEND\ncat > train.py <<'END'\n{TRAIN}END\n"
    tile = home / ".local/share/jupyter/kernels/bitfusion/kernel.json"
    first = machine.user(
        USER,
        typed([*GET.splitlines(), *NOTHING_YET, *INSTALL.splitlines()])
        + files
        + cells
        + typed([*BATCH.splitlines(), STATUS]),
        limit_s=240,
        pip=True,
    )
    assert tile.exists()
    executed = nbformat.read(home / "kubeflow-bitfusion" / "out.ipynb", as_version=4)
    assert "8080 of 16160" in str(executed.cells[-1].outputs)
    last = machine.user(
        USER,
        f"{NOTHING_YET[1]}\n{typed(UNINSTALL.splitlines())}cd kubeflow-bitfusion; mkdir -p build/venv\n"
        f"python -m compileall -q bitfusion_kernel\n{typed([CLEAN])}printf '{MARK}left\\n'\n"
        "git status --porcelain --ignored\n",
    )
    found = came(first) | came(last)
    assert found.pop("left").split() == ["??", "in.ipynb", "??", "out.ipynb", "??", "train.py"]
    rows = [(line, next(iter(text.strip().splitlines()[::-1]), "")[:80]) for line, text in found.items()]
    print(box(["typed", "came at last"], rows))
    for block in (shell_blocks(SECTIONS["Get it"])[0], INSTALL, BATCH, UNINSTALL):
        assert set(block.replace("ADDRESS", ADDRESS).splitlines()) <= found.keys()
        ran(block)
    for line, text in found.items():
        wanted = max((each for each in CAME if line.startswith(each)), key=len, default="")
        assert CAME.get(wanted, "") in text, f"{line}:\n{text}"
    assert [line for line in CAME if not any(each.startswith(line) for each in found)] == []
    assert not tile.exists()
    left = {path.name for path in home.iterdir()} - before
    assert left <= {"kubeflow-bitfusion", "jupyter", ".cache", ".config", ".ipython", ".jupyter", ".local"}
    assert not (home / ".local/state/bitfusion-kernel").exists()
