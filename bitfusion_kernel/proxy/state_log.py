"""Each change of the kernel's state as a line of JSON in Jupyter's log, where `log_states` is on."""

from __future__ import annotations

import json
import select
import time
from typing import TYPE_CHECKING, Any

from bitfusion_kernel.proxy.jupyter.jupyter_log import write_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from bitfusion_kernel.proxy.state_board import StateBoard

MESSAGE = "kernel state"
_LONG = ("lease", "queue")


class StateLog:
    """The proxy has one while the setting is on. It watches the board, as other programs do.

    A line is written when the state has another name: places in a queue change too often for a log.
    """

    def __init__(self, board: StateBoard, write: Callable[[str], None] = write_line) -> None:
        self._write = write
        self._name = ""
        board.watch(self, self._tell)

    def _tell(self, state: dict[str, Any]) -> None:
        if state["state"] != self._name:
            self._name = state["state"]
            self._write(line(state, time.time()))


def line(state: dict[str, Any], now: float) -> str:
    """The line, with the fields of the programs' structured logs before those of the state (its schema).

    Args:
        state: The whole one. Devices and queue are left out of a line that a pipe might not take at once.
        now: Seconds since the epoch.
    """
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    head = {
        "time": f"{seconds}.{int(now % 1 * 1000):03}Z",
        "level": "info",
        "logger": "bitfusion_kernel",
        "message": MESSAGE,
    }
    text = json.dumps(head | state)
    return text if len(text) < select.PIPE_BUF else json.dumps(head | state | dict.fromkeys(_LONG))
