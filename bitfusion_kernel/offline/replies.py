"""The replies to Jupyter's requests while no kernel runs, and which requests wait for the kernel. Pure.

Jupyter's clients give a kernel 20 to 120 s to answer, and the wait for a GPU may take longer; so each request
that has an honest answer without a kernel is answered at once, and every other one is held:

    sent on         request                                              without a kernel
    shell           kernel_info, comm_info, complete, inspect,           answered
                    history, is_complete
    control         kernel_info, debug_request `debugInfo`               answered
    control         create_subshell, list_subshell, delete_subshell      answered
    control         usage                                                answered, for the proxy itself
    control         any other debug_request                              held; a kernel is started for it
    control         any other request                                    refused
    shell           comm_msg, comm_close of a comm that nobody opened    busy and idle; they have no reply
    shell           comm_open that asks for widgets                      closed: there are none
    shell, control  everything else, as execute_request or comm_open     held

The reply does not depend on the channel. `interrupt_request` and `shutdown_request` never come here: the
proxy answers them itself, with a kernel or without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bitfusion_kernel.offline.early_subshells import MOST, EarlySubshells

if TYPE_CHECKING:
    from bitfusion_kernel.offline.usage import Usage

Json = dict[str, Any]


class OfflineReplies:
    """Answers for the kernel that does not exist yet. The proxy makes one.

    Args:
        kernel_info: Content of the real kernel's reply, cached when the kernelspec was installed.
        language: Of the kernel's code.
        kernel_options: The kernel's command line, which may name another history file.
        files_prefix: The folder in which the kernel to come will name its cells' files.
        subshells: Keeps those that are created now for the kernel to come.
    """

    def __init__(
        self,
        kernel_info: Json,
        language: str,
        kernel_options: list[str],
        files_prefix: str,
        subshells: EarlySubshells,
    ) -> None:
        self._language = language
        self._kernel_options = kernel_options
        self._files_prefix = files_prefix
        self._subshells = subshells
        self._usage: Usage | None = None
        features = kernel_info.get("supported_features")
        self._replies: dict[str, Callable[[Json], Json | None]] = {
            "kernel_info_request": lambda _: kernel_info,
            "comm_info_request": lambda _: {"status": "ok", "comms": {}},
            "complete_request": self._complete_reply,
            "inspect_request": lambda _: {"status": "ok", "found": False, "data": {}, "metadata": {}},
            "history_request": self._history_reply,
            "is_complete_request": self._is_complete_reply,
            "debug_request": self._debug_reply,
            "usage_request": self._usage_reply,
        }
        # else ipykernel leaves them without a reply
        if isinstance(features, list) and "kernel subshells" in features:
            self._replies["create_subshell_request"] = self._create_subshell_reply
            self._replies["list_subshell_request"] = lambda _: {"status": "ok", "subshell_id": subshells.ids}
            self._replies["delete_subshell_request"] = self._delete_subshell_reply

    def reply(self, message_type: str, content: Json) -> Json | None:
        """The content of the reply, or None for a request that only the kernel can answer."""
        reply = self._replies.get(message_type)
        return None if reply is None else reply(content)

    def needs_kernel(self, message_type: str) -> bool:
        """Whether a held request must not wait for the first cell: a kernel is started for it.

        Only a debugger that was turned on sends a `debug_request` other than `debugInfo`. Without a kernel it
        would stay half started, and a breakpoint for the first cell could not be set.
        """
        return message_type == "debug_request"

    def _complete_reply(self, content: Json) -> Json:
        code = str(content.get("code", ""))
        cursor = content.get("cursor_pos")
        if cursor is None:  # at the end, as IPython takes it
            cursor = len(code)
        found = None
        if "%" in code and isinstance(cursor, int):
            from bitfusion_kernel.magic.completion import complete

            found = complete(code, cursor)
        matches, start = found or ([], cursor)
        return {
            "status": "ok",
            "matches": matches,
            "cursor_start": start,
            "cursor_end": cursor,
            "metadata": {},
        }

    def _is_complete_reply(self, content: Json) -> Json:
        from bitfusion_kernel.offline.code_completeness import is_complete_reply

        return is_complete_reply(str(content.get("code", "")), self._language)

    def _history_reply(self, content: Json) -> Json:
        from bitfusion_kernel.offline.history import history_reply

        return history_reply(content, self._kernel_options, os.environ)

    def _debug_reply(self, content: Json) -> Json | None:
        """As ipykernel's `Debugger.debugInfo` answers before the debugger is started."""
        if content.get("command") != "debugInfo":
            return None
        return {
            "type": "response",
            "request_seq": content.get("seq", 0),
            "success": True,
            "command": "debugInfo",
            "body": {
                "isStarted": False,
                "hashMethod": "Murmur2",
                "hashSeed": 0xC70F6907,
                "tmpFilePrefix": self._files_prefix + os.sep,
                "tmpFileSuffix": ".py",
                "breakpoints": [],
                "stoppedThreads": [],
                "richRendering": True,
                "exceptionPaths": ["Python Exceptions"],
                "copyToGlobals": True,
            },
        }

    def _usage_reply(self, _: Json) -> Json:
        if self._usage is None:
            from bitfusion_kernel.offline.usage import Usage

            self._usage = Usage()
        return self._usage.reply()

    def _create_subshell_reply(self, _: Json) -> Json:
        subshell = self._subshells.create()
        if subshell is None:
            return {"status": "error", "evalue": f"at most {MOST} subshells before the kernel has started"}
        return {"status": "ok", "subshell_id": subshell}

    def _delete_subshell_reply(self, content: Json) -> Json:
        subshell = content.get("subshell_id")
        if self._subshells.delete(subshell):
            return {"status": "ok"}
        return {"status": "error", "evalue": f"Unknown subshell_id {subshell!r}"}
