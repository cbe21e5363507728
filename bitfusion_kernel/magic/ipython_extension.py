"""The IPython extension in the kernel: `%bitfusion` in cells that hold other code, too.

`processes.kernel_start` has IPython load it. It sends each line to the proxy, which knows the subcommands
(`commands`). A cell that holds only `%bitfusion` lines never gets here: the proxy answers it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from bitfusion_client.kernel_state import proxy_socket
from bitfusion_kernel.magic import subshell_ids

ANSWER_LIMIT = 10.0
"""Seconds until a proxy that does not answer is reported: it may ask the bitfusion client, for 5 s."""

_environment: dict[str, str] = {}
"""What the kernel was started with: a cell may empty `os.environ`."""


def ask_proxy(words: str) -> dict[str, Any]:
    """The proxy's answer to one line, in the form that `proxy.magic_socket` describes.

    Raises:
        OSError: No proxy answers.
        KeyError: This kernel was not started by a proxy.
        ValueError: The answer is not JSON.
    """
    path = os.environ.get(proxy_socket.SOCKET_VARIABLE) or _environment[proxy_socket.SOCKET_VARIABLE]
    with proxy_socket.connect(path, ANSWER_LIMIT) as connection:
        connection.sendall(json.dumps({"words": words}).encode())
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    answer: dict[str, Any] = json.loads(b"".join(chunks))
    return answer


def bitfusion(line: str) -> None:
    """`%bitfusion [subcommand]`: the state of this kernel's GPU. `%bitfusion help` lists the subcommands."""
    try:
        answer = ask_proxy(line)
    except (OSError, KeyError, ValueError):
        print("The Bitfusion proxy of this kernel does not answer; restart the kernel.", file=sys.stderr)
        return
    if "error" in answer:
        print(answer["error"], file=sys.stderr)
    elif "bundle" in answer:
        from IPython.display import display

        display(answer["bundle"], raw=True)  # type: ignore[no-untyped-call]  # IPython's
    elif "client" in answer:
        _run_client(answer.get("path", "bitfusion"), answer["client"])
    else:
        print(answer["text"])


def _run_client(path: str, subcommand: str) -> None:
    """Print what the bitfusion client says, if it lies where this kernel runs."""
    try:
        done = subprocess.run(
            [path, subcommand],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            env=_environment | os.environ,
        )
    except OSError as error:
        alone = f"%bitfusion {subcommand} in a cell of its own runs beside the notebook."
        print(f"{path} cannot be run by this kernel: {error.strerror}. {alone}", file=sys.stderr)
    else:
        print(done.stdout, end="")


def _use_the_proxys_files_prefix() -> None:
    """Name the files of cells as the proxy told JupyterLab's debugger before this kernel existed."""
    prefix = os.environ.get("BITFUSION_KERNEL_FILES_PREFIX")
    if not prefix:
        return
    from ipykernel import compiler

    compiler.get_tmp_directory = lambda: prefix
    debugger = sys.modules.get("ipykernel.debugger")
    if debugger is not None and hasattr(debugger, "get_tmp_directory"):
        debugger.get_tmp_directory = compiler.get_tmp_directory  # type: ignore[attr-defined]  # its own copy


def _tell_of_simulated_gpus(ipython: Any) -> None:
    """In the banner, which consoles show when they begin, also those that join later."""
    from bitfusion_kernel.gpu import simulated

    if simulated.holds_only_simulated(os.environ):
        ipython.banner1 = simulated.with_line(ipython.banner1)  # with a banner2 IPython leaves out its tip


def _complete(_: Any, event: Any) -> list[str]:
    """What Tab offers; called by IPython for lines that begin with `%bitfusion`."""
    from bitfusion_kernel.magic.completion import complete

    line = event.text_until_cursor
    found = complete(line, len(line))
    return found[0] if found else []


def load_ipython_extension(ipython: Any) -> None:
    """Called by IPython when the kernel starts."""
    _environment.update(os.environ)
    ipython.register_magic_function(bitfusion, "line", "bitfusion")
    ipython.set_hook("complete_command", _complete, str_key="%bitfusion")
    _use_the_proxys_files_prefix()
    subshell_ids.take_from_proxy(getattr(ipython, "kernel", None))
    _tell_of_simulated_gpus(ipython)
