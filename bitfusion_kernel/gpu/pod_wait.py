"""A kernel's wait for the budget of its pod, before it asks the pool: its start, and what it has told."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bitfusion_kernel.pod import take_turn
from bitfusion_kernel.pod.account import AccountUnusable, open_account
from bitfusion_kernel.pod.turn_lines import NotCounted, Taken, parse_turn_line
from bitfusion_kernel.pod.turns import LONGEST_NAME, NAMELESS, WHAT_IS_LEFT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bitfusion_client.command.client_lines import Waiting
    from bitfusion_client.request.gpu_request import GpuRequest
    from bitfusion_kernel.pod.facts import Pod


class PodWait:
    """The wait of one attempt.

    Args:
        takes_what_is_left: Whether no size was given: then the request is not known before its turn.
        not_counted: Why the pod's other kernels are not waited for; empty if they are.
    """

    def __init__(self, *, takes_what_is_left: bool, not_counted: str = "") -> None:
        self.takes_what_is_left = takes_what_is_left
        self.not_counted = not_counted
        self.over = bool(not_counted)
        """Whether the pool has been asked."""

    def on_line(self, text: str) -> Waiting | Taken | NotCounted | None:
        """One line of the wrapper's; None if it is not of this wait."""
        line = None if self.over else parse_turn_line(text)
        if isinstance(line, (Taken, NotCounted)):
            self.over = True
        if isinstance(line, NotCounted):
            self.not_counted = line.problem
        return line

    def describe(self, request: GpuRequest) -> str:
        """What is waited for."""
        if self.takes_what_is_left and not self.over:
            return f"{WHAT_IS_LEFT} of this pod's budget"
        return request.describe()


class PodStart:
    """How a kernel is started in a pod: by which command, and which file its supervisor holds meanwhile."""

    def __init__(
        self,
        pod: Pod,
        request: GpuRequest,
        notebook: str,
        environ: Mapping[str, str],
        *,
        takes_what_is_left: bool,
    ) -> None:
        self.entry = ""
        self.wait = PodWait(takes_what_is_left=takes_what_is_left)
        try:
            self.entry = open_account(pod, environ).new_entry()
        except AccountUnusable as error:
            self.wait = PodWait(takes_what_is_left=takes_what_is_left, not_counted=str(error))
        self._wanted = take_turn.wanted(
            pod.budget, request, notebook[:LONGEST_NAME] or NAMELESS, takes_what_is_left=takes_what_is_left
        )

    def command(self, run: list[str], client: str, program: list[str]) -> list[str]:
        """The wrapper's command line; `run`: what it is outside pods, or where nobody counts."""
        if not self.entry:
            return run
        return take_turn.command(sys.executable, self.entry, self._wanted, client, program)
