"""What the proxy does with each request while there is no kernel yet. Pure: a table, no I/O.

Jupyter's clients give a kernel 20 to 120 s to answer, and a queue for a GPU may take longer; so
everything that has an honest answer without a kernel is answered at once, and the rest waits for it.
"""

from __future__ import annotations

import os
from typing import Any

from bitfusion_kernel.magic.grammar import Command, parse_cell

Json = dict[str, Any]


class Answer:
    """Reply at once with `content`."""

    __slots__ = ("content",)

    def __init__(self, content: Json) -> None:
        self.content = content


class Hold:
    """Keep the message for the kernel. `needs_kernel`: get one now rather than with the first cell."""

    __slots__ = ("needs_kernel",)

    def __init__(self, *, needs_kernel: bool) -> None:
        self.needs_kernel = needs_kernel


class RunCell:
    """A cell for the kernel: the GPU is asked for now."""


class HoldSilentCell:
    """A cell nobody sees (VS Code's start-up code): kept, and answered after a time limit."""


class RunCommands:
    """A cell made only of `%bitfusion` lines."""

    __slots__ = ("commands",)

    def __init__(self, commands: list[Command]) -> None:
        self.commands = commands


class Interrupt:
    """Answer, and end the wait a moment later unless a shutdown follows."""


class Shutdown:
    """Answer and end. `restart`: Jupyter starts the next proxy at once."""

    __slots__ = ("restart",)

    def __init__(self, *, restart: bool) -> None:
        self.restart = restart


Decision = Answer | Hold | RunCell | HoldSilentCell | RunCommands | Interrupt | Shutdown


def _debug_info(content: Json, files_prefix: str) -> Json:
    """As ipykernel's Debugger.debugInfo answers before the debugger is started."""
    return {
        "type": "response",
        "request_seq": content.get("seq", 0),
        "success": True,
        "command": "debugInfo",
        "body": {
            "isStarted": False,
            "hashMethod": "Murmur2",
            "hashSeed": 0xC70F6907,
            "tmpFilePrefix": files_prefix + os.sep,
            "tmpFileSuffix": ".py",
            "breakpoints": [],
            "stoppedThreads": [],
            "richRendering": True,
            "exceptionPaths": ["Python Exceptions"],
            "copyToGlobals": True,
        },
    }


class OfflineReplies:
    """The facts an answer needs. Made once by the proxy.

    `kernel_info` is the content of the real kernel's reply, cached when the kernelspec was installed;
    `history` and `completeness` map a request's content to a reply's content.
    """

    def __init__(self, kernel_info: Json, history: Any, completeness: Any, files_prefix: str) -> None:
        self._kernel_info = kernel_info
        self._history = history
        self._completeness = completeness
        self._files_prefix = files_prefix

    def decide(self, message_type: str, content: Json) -> Decision:
        """What to do with one request, whichever channel it came on."""
        if message_type == "execute_request":
            if content.get("silent", False):
                return HoldSilentCell()
            commands = parse_cell(str(content.get("code", "")))
            return RunCell() if commands is None else RunCommands(commands)
        if message_type == "kernel_info_request":
            return Answer(self._kernel_info)
        if message_type == "interrupt_request":
            return Interrupt()
        if message_type == "shutdown_request":
            return Shutdown(restart=bool(content.get("restart", False)))
        if message_type == "complete_request":
            cursor = content.get("cursor_pos", len(str(content.get("code", ""))))
            return Answer(
                {"status": "ok", "matches": [], "cursor_start": cursor, "cursor_end": cursor, "metadata": {}}
            )
        if message_type == "inspect_request":
            return Answer({"status": "ok", "found": False, "data": {}, "metadata": {}})
        if message_type == "comm_info_request":
            return Answer({"status": "ok", "comms": {}})
        if message_type == "history_request":
            return Answer(self._history(content))
        if message_type == "is_complete_request":
            return Answer(self._completeness(str(content.get("code", ""))))
        if message_type == "debug_request":
            if content.get("command") == "debugInfo":
                return Answer(_debug_info(content, self._files_prefix))
            # Only somebody who turned the debugger on sends the others; without a kernel the debugger
            # would stay half started and a breakpoint for the first cell could not be set.
            return Hold(needs_kernel=True)
        return Hold(needs_kernel=False)
