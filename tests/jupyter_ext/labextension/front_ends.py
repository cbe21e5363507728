"""The front ends that the tests click through: the ends of the promised range.

The newest JupyterLab is the test environment's. The oldest, and Notebook 7, are in one of their own, which
`make test-long` makes, or the first test that wants it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools.environment import ROOT

OLDEST = Path(ROOT) / "build" / "venv-oldest-front-ends"
COLLABORATION = (
    "@jupyter/collaboration-extension",
    "@jupyter/docprovider-extension",
    # which the collaboration extension has off, also where it is off itself
    "@jupyterlab/filebrowser-extension:defaultFileBrowser",
    "@jupyterlab/notebook-extension:cell-executor",
)


@dataclass(frozen=True)
class FrontEnd:
    """One that a server serves."""

    name: str
    module: str = "jupyterlab"
    is_oldest: bool = True
    is_shared: bool = False  # several people in one notebook: jupyter-collaboration
    lacks: Mapping[str, str] = field(default_factory=dict, hash=False)
    own_errors: tuple[str, ...] = ()  # in the browser's console, with or without our part

    def python(self) -> str:
        """Of its environment, which is made where it is missing."""
        if not self.is_oldest:
            return sys.executable
        command = [sys.executable, "tools/environment.py", "oldest-front-ends", f"--folder={OLDEST}"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return str(OLDEST / "bin" / "python")

    def extensions(self) -> dict[str, bool]:
        """The server extensions that are on and off; a stand-in takes the place of ours."""
        return {
            "jupyterlab": True,
            "notebook": self.module == "notebook",
            "jupyter_lsp": False,
            "jupyter_server_fileid": self.is_shared,
            "jupyter_server_ydoc": self.is_shared,
            "jupyter_ext.server": False,
            "tests.jupyter_ext.labextension.stand_in": True,
        }

    def write_configuration(self, folder: Path) -> None:
        """Have the collaboration extension off in the page, unless it is wanted."""
        file = folder / "labconfig" / "page_config.json"
        file.parent.mkdir(parents=True)
        extension, provider, *others = COLLABORATION
        off = {} if self.is_shared else {extension: True, provider: True} | dict.fromkeys(others, False)
        file.write_text(json.dumps({"disabledExtensions": off}))

    def open(self, path: str) -> str:
        """The address of a notebook, below the server's."""
        return f"/notebooks/{path}" if self.module == "notebook" else f"/lab/tree/{path}?reset"


NEWEST_LAB = FrontEnd("newest", is_oldest=False)
OLDEST_LAB = FrontEnd("lab 4.2")
SHARED_LAB = FrontEnd("lab 4.2 shared", is_shared=True)
NOTEBOOK = FrontEnd(
    "notebook 7.2",
    module="notebook",
    lacks={
        "status bar": "its shell has none",
        "arrow keys": "its toolbar cannot be walked through by them, whatever is in it",
        "launcher": "notebooks are made in the page of the files, by a menu",
        "running": "it is in the page of the files, beside no notebook",
        "settings": "its editor opens in a page of its own",
    },
    own_errors=("reading 'last_modified'",),  # of a notebook that has no checkpoint yet
)
FRONT_ENDS = (NEWEST_LAB, OLDEST_LAB, NOTEBOOK, SHARED_LAB)


def in_front_ends(*front_ends: FrontEnd) -> pytest.MarkDecorator:
    """Run a test in each of these; all but the newest are long."""

    def parameter(front: FrontEnd) -> object:
        group = pytest.mark.xdist_group(f"front end: {front.name}")
        return pytest.param(front, id=front.name, marks=[group, *([pytest.mark.long] * front.is_oldest)])

    return pytest.mark.parametrize("front", [parameter(each) for each in front_ends], indirect=True)


def that_have(part: str = "") -> pytest.MarkDecorator:
    """Run a test in each front end whose shell has that part; the others say in `lacks` why it has not."""
    return in_front_ends(*(each for each in (NEWEST_LAB, OLDEST_LAB, NOTEBOOK) if part not in each.lacks))
