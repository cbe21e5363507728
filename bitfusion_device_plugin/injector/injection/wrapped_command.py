"""The command of a container that is to run with the GPUs, as a list of words and never through a shell."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from bitfusion_client.command.command_line import format_options, run_command
from bitfusion_client.command.find_client import COMMAND
from bitfusion_client.errors import WrongKey
from bitfusion_client.kubernetes.names import ANNOTATION_MANAGEMENT, MANAGEMENT_INJECTION
from bitfusion_client.kubernetes.raw_objects import text
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER, COMMAND_FILE
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_device_plugin.injector.injection.recorded_requests import escaped

CLIENT = f"{CLIENT_FOLDER}/{COMMAND_FILE}"
SET_COMMAND = (
    f"Write the command into the pod, or use {ANNOTATION_MANAGEMENT}: {MANAGEMENT_INJECTION} and start "
    "bitfusion run inside."
)


def wrapped_command(container: Mapping[str, Any], request: GpuRequest, management: object) -> list[Any]:
    """The command that runs the container's own one with the GPUs; its arguments stay where they are.

    A command that starts the client by itself stays as it is, so that a second pass changes nothing.

    Raises:
        WrongKey: There is no command, and nobody here knows the one of the image.
    """
    command = container.get("command")
    if not isinstance(command, list) or not command:
        name = text(container.get("name"))
        problem = (
            f'wants the command of container "{name}" run with the GPUs, and it has none but its image\'s'
        )
        raise WrongKey(ANNOTATION_MANAGEMENT, management, problem, SET_COMMAND)
    if not all(isinstance(word, str) for word in command) or not command[0] or _starts_client(command):
        return command
    start = [CLIENT, "run", *(escaped(word) for word in format_options(request)), "--"]
    if len(command) == 1 and not container.get("args"):
        # the client splits a word that stands alone; `run_command` knows what to do
        return start + run_command(CLIENT, request, command)[len(start) :]
    return start + command


def _starts_client(command: list[str]) -> bool:
    """``bitfusion run …``, as a command or as a shell's line."""
    if posixpath.basename(command[0]) == COMMAND:
        return True
    lines = (word.split(maxsplit=2) for word in command)
    return any(
        len(words) > 1 and posixpath.basename(words[0]) == COMMAND and words[1] == "run" for words in lines
    )
