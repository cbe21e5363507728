"""Asks a real kernel who it is: starts it, reads the content of its `kernel_info_reply`, ends it.

Called by `bitfusion-kernel install`, which caches the answer in the spec, and by doctor, which compares.
"""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any

from bitfusion_client.errors import KernelDied
from bitfusion_client.exit_status import describe_exit
from bitfusion_kernel.processes import private_folder

START_LIMIT = 60.0  # seconds, as jupyter_client's own start-up limit


def ask_kernel(argv: list[str], env: dict[str, str], limit: float = START_LIMIT) -> dict[str, Any]:
    """The content of the kernel's `kernel_info_reply`. `argv` holds `{connection_file}`.

    Raises KernelDied, with the kernel's last output, if it does not answer within `limit` seconds.
    """
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.connect import write_connection_file

    try:
        folder = private_folder.create(os.environ)
    except OSError as error:
        raise KernelDied(argv[0], str(error), "make /tmp writable or set XDG_RUNTIME_DIR.") from None
    try:
        file = os.path.join(folder, "kernel.json")
        write_connection_file(
            file, transport="ipc", ip=os.path.join(folder, "s"), key=os.urandom(16).hex().encode()
        )
        errors = os.path.join(folder, "stderr")
        command = [word.replace("{connection_file}", file) for word in argv]
        # no history: the questioned kernel must leave no trace in the user's
        command.append("--HistoryManager.enabled=False")
        environment = {**os.environ, **env, "JPY_PARENT_PID": str(os.getpid())}
        with open(errors, "wb") as stream:
            try:
                process = subprocess.Popen(
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
        client = BlockingKernelClient(connection_file=file)
        try:
            client.load_connection_file()
            client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=True)
            content = _answer(client, process, errors, time.monotonic() + limit)
            client.shutdown()
            return content
        finally:
            _end(process)
            client.stop_channels()
            client.context.term()
    finally:
        private_folder.remove(folder)


def _answer(client: Any, process: subprocess.Popen[bytes], errors: str, deadline: float) -> dict[str, Any]:
    import queue

    client.kernel_info()
    while time.monotonic() < deadline:
        try:
            reply = client.get_shell_msg(timeout=0.2)
        except queue.Empty:
            status = process.poll()
            if status is None:
                continue
            raise KernelDied(
                _command(process),
                f"it {describe_exit(status)}: {_last_output(errors)}",
                "install ipykernel for this Python.",
            ) from None
        if reply["msg_type"] == "kernel_info_reply":
            content = reply["content"]
            assert isinstance(content, dict)
            return content
    raise KernelDied(_command(process), "it did not answer in time", "try again on a less busy machine.")


def _command(process: subprocess.Popen[bytes]) -> str:
    arguments = process.args
    return " ".join(str(word) for word in arguments) if isinstance(arguments, list) else str(arguments)


def _last_output(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    for stop in (None, process.terminate, process.kill):
        if stop is not None:
            stop()
        try:
            process.wait(5)
            return
        except subprocess.TimeoutExpired:
            continue
