"""What the command says while it waits, in the client's lines: each change to a program, less to a person."""

from __future__ import annotations

import time

from bitfusion_client.command.client_output import (
    format_back_in_reach,
    format_out_of_reach,
    format_waiting,
)
from bitfusion_client.command.command_line import ALL_LINES_VARIABLE
from bitfusion_client.fast_imports import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bitfusion_client.command.log_output import LogOutput
    from bitfusion_pods.places.kueue import Place

EACH_S, PEOPLES_S = 10.0, 60.0
"""Seconds after which the same is said again, to a program and to a person."""


class Telling:
    """That of one run.

    Args:
        log: Where it is said.
        environ: Says whether a program reads it, such as a kernel.
        clock: Seconds of a clock that only goes on.
    """

    def __init__(
        self, log: LogOutput, environ: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.log = log
        self._is_read = bool(environ.get(ALL_LINES_VARIABLE))
        self._clock = clock
        self._said = ""
        self._due = 0.0
        self.pod = ""
        """The name of the GPU pod, once there is one."""

    def waits(self, why: str, place: Place | None = None) -> None:
        """It waits, for this reason."""
        position, length = (None, None) if place is None else (place.position, place.of)
        line, now = format_waiting(position, length, why=why), self._clock()
        kind = "".join(letter for letter in line if not letter.isdigit())  # seconds go on by themselves
        if now < self._due and (line if self._is_read else kind) == self._said:
            return
        self._said = line if self._is_read else kind
        self._due = now + (EACH_S if self._is_read else PEOPLES_S)
        self.log.log(line)

    def lost(self, why: str, seconds_left: float) -> None:
        """As `remote_program.Hears` has it."""
        self.log.log(format_out_of_reach(self.pod, why, round(seconds_left)), "WARN")

    def back(self, seconds: float) -> None:
        """Likewise."""
        self.log.log(format_back_in_reach(self.pod, round(seconds)))
