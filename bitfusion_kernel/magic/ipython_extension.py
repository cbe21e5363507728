"""IPython extension loaded into the kernel: `%bitfusion` in cells that hold other code, too.

`bitfusion-kernel`'s proxy adds it to the kernel's command line. A cell made only of `%bitfusion` lines
never gets here: the proxy answers it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

_CLIENT_COMMANDS = {"pool": "list_gpus", "list_gpus": "list_gpus", "health": "health"}


def ask_proxy(words: str) -> dict[str, str]:
    """The proxy's answer: {"text": …} or {"error": …}. Raises OSError if there is no proxy."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(os.environ["BITFUSION_KERNEL_SOCKET"])
        connection.sendall(json.dumps({"words": words}).encode())
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    answer: dict[str, str] = json.loads(b"".join(chunks))
    return answer


def bitfusion(line: str) -> None:
    """`%bitfusion [command]`: the state of this kernel's GPU. `%bitfusion help` lists the commands."""
    command = line.split()[0] if line.split() else "status"
    if command in _CLIENT_COMMANDS and len(line.split()) == 1:
        done = subprocess.run(
            ["bitfusion", _CLIENT_COMMANDS[command]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout, end="")
        return
    try:
        answer = ask_proxy(line)
    except (OSError, KeyError, ValueError):
        print("The Bitfusion proxy of this kernel does not answer; restart the kernel.", file=sys.stderr)
        return
    if "error" in answer:
        print(answer["error"], file=sys.stderr)
    else:
        print(answer["text"])


def _agree_on_files_prefix() -> None:
    """Use the folder name that the proxy has told JupyterLab's debugger before this kernel existed."""
    prefix = os.environ.get("BITFUSION_KERNEL_FILES_PREFIX")
    if not prefix:
        return
    from ipykernel import compiler

    compiler.get_tmp_directory = lambda: prefix
    debugger = sys.modules.get("ipykernel.debugger")
    if debugger is not None and hasattr(debugger, "get_tmp_directory"):
        debugger.get_tmp_directory = compiler.get_tmp_directory  # type: ignore[attr-defined]  # its own copy


def load_ipython_extension(ipython: Any) -> None:
    """Called by IPython at the kernel's start."""
    ipython.register_magic_function(bitfusion, "line", "bitfusion")
    _agree_on_files_prefix()
