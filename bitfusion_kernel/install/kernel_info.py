"""Asks a real kernel who it is: starts it, reads the content of its `kernel_info_reply`, ends it.

Called by `bitfusion-kernel install`, which caches the answer in the spec, and by the doctor, which compares.
"""

from __future__ import annotations

import os
import queue
import subprocess
import time
from typing import Any

from bitfusion_client.command.exit_status import describe_exit
from bitfusion_client.errors import KernelDied
from bitfusion_kernel.processes import private_folder

START_LIMIT = 60.0
"""Seconds, as jupyter_client's own limit for a start."""

END_PATIENCE = 5.0
"""Seconds a kernel gets after `shutdown_request`, and again after SIGTERM."""


def ask_kernel(argv: list[str], env: dict[str, str], limit: float = START_LIMIT) -> dict[str, Any]:
    """The content of the kernel's `kernel_info_reply`.

    Args:
        argv: The kernel's command line, with `{connection_file}` where the file's path goes.
        env: Variables to add to this process's environment.
        limit: Seconds to wait for the answer.

    Raises:
        KernelDied: It can't be started, ended, or did not answer in time; with the last line of its output.
    """
    try:
        folder = private_folder.create(os.environ)
    except OSError as error:
        raise KernelDied(argv[0], str(error), "make /tmp writable or set XDG_RUNTIME_DIR.") from None
    try:
        return _ask(argv, env, limit, folder)
    finally:
        private_folder.remove(folder)


def _ask(argv: list[str], env: dict[str, str], limit: float, folder: str) -> dict[str, Any]:
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.connect import write_connection_file

    file = os.path.join(folder, "kernel.json")
    key = os.urandom(16).hex().encode()
    write_connection_file(file, transport="ipc", ip=os.path.join(folder, "s"), key=key)
    output = os.path.join(folder, "output")
    # No history: the kernel that is asked must leave no trace in the user's.
    command = [*(word.replace("{connection_file}", file) for word in argv), "--HistoryManager.enabled=False"]
    process = _start(command, env, output)
    client = BlockingKernelClient(connection_file=file)
    try:
        client.load_connection_file()
        client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=True)
        content = _answer(client, process, " ".join(command), output, time.monotonic() + limit)
        client.shutdown()
        return content
    finally:
        _end(process)
        client.stop_channels()
        client.context.term()


def _start(command: list[str], env: dict[str, str], output: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **env, "JPY_PARENT_PID": str(os.getpid())}
    with open(output, "wb") as stream:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise KernelDied(
                " ".join(command[:3]), str(error), "install ipykernel for this Python."
            ) from None


def _answer(
    client: Any,  # a BlockingKernelClient, whose annotations are incomplete
    process: subprocess.Popen[bytes],
    command: str,
    output: str,
    deadline: float,
) -> dict[str, Any]:
    client.kernel_info()
    while time.monotonic() < deadline:
        try:
            reply = client.get_shell_msg(timeout=0.2)
        except queue.Empty:
            status = process.poll()
            if status is None:
                continue
            raise KernelDied(
                command,
                f"it {describe_exit(status)}: {_last_line(output)}",
                "install ipykernel for this Python.",
            ) from None
        if reply["msg_type"] == "kernel_info_reply":
            content = reply["content"]
            assert isinstance(content, dict)
            return content
    raise KernelDied(command, "it did not answer in time", "try again on a less busy machine.")


def _last_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    for next_step in (process.terminate, process.kill, None):
        try:
            process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            if next_step is not None:
                next_step()
        else:
            return
