"""`make lab`: what its terminals find, wherever make itself was started."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import websocket

from tests.jupyter.jupyter_server import ServerProcess
from tests.support.machine import scaled

ROOT = Path(__file__).resolve().parent.parent.parent
BIN = Path(sys.executable).parent
QUESTION = "echo found: $(command -v bitfusion) $(command -v bitfusion-pool) :end\r"


def recipe(folder: Path, options: list[str]) -> str:
    """The command with which `make lab` starts JupyterLab."""
    shown = subprocess.run(
        ["make", "-n", "lab", f"BIN={BIN}", f"FOLDER={folder}", f"LAB={' '.join(options)}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"^.*\bjupyter lab\b", shown.stdout, re.MULTILINE)
    assert found is not None
    return "exec env " + shown.stdout[found.start() :]


def test_a_terminal_of_jupyterlab_finds_both_commands(tmp_path: Path) -> None:
    """Its server's output is no terminal here, where a login shell would begin a PATH of its own."""
    (tmp_path / "lab").mkdir()

    def by_make(command: list[str]) -> list[str]:
        return ["sh", "-c", recipe(tmp_path, command[command.index("--no-browser") :])]

    system = {"PATH": "/usr/local/bin:/usr/bin:/bin", "SHELL": "/bin/bash", "HOME": str(tmp_path)}
    server = ServerProcess("jupyterlab", tmp_path, ["--ServerApp.disable_check_xsrf=True"], system, by_make)
    try:
        name = server.ask("POST", "/api/terminals")["name"]
        address = server.address.replace("http", "ws")
        terminal = websocket.create_connection(f"{address}/terminals/websocket/{name}", timeout=scaled(20))
        terminal.send(json.dumps(["stdin", QUESTION]))
        said = ""
        while " :end\r\n" not in said.replace(QUESTION, ""):
            kind, *text = json.loads(terminal.recv())
            said += text[0] if kind == "stdout" else ""
        terminal.close()
        server.ask("DELETE", f"/api/terminals/{name}")
    finally:
        server.stop()
    assert f"found: {BIN}/bitfusion {BIN}/bitfusion-pool :end" in said
    assert os.access(BIN / "bitfusion", os.X_OK)
