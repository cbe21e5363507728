"""One attempt to get GPUs: from asking `bitfusion run` to its end. Pure: fed with the supervisor's events.

The proxy makes one per wrapper it starts and asks it what to show and, at the end, what went wrong.
"""

from __future__ import annotations

import json
import signal
from collections import deque
from typing import TYPE_CHECKING, Any

from bitfusion_client.command.exit_status import describe_exit, from_shell
from bitfusion_client.errors import BitfusionError, KernelDied, WrapperDied
from bitfusion_client.request.gpu_request import GpuRequest
from bitfusion_kernel.processes import deaths
from bitfusion_kernel.processes.launcher import KERNEL_SPEAKS
from bitfusion_kernel.processes.messages import LaunchedEvent

if TYPE_CHECKING:
    from bitfusion_client.command.client_lines import PodEnded, PoolLost, Waiting
    from bitfusion_kernel.gpu.pod_wait import PodWait
    from bitfusion_kernel.gpu.pool_outage import PoolOutage
    from bitfusion_kernel.protocol.connection_file import ConnectionInfo

BESIDE_LIMIT = 30.0
"""Seconds that a kernel waits for another size while it holds what others may wait for."""

LOG_LINES = 500
MOST_NOTES = 5
KERNEL_LINES = 50
"""An interpreter that cannot start says 30."""
LONGEST_LAST_OUTPUT = 300
"""Characters of a kernel's last lines, as its error shows them: the end of a traceback."""

TRY_AGAIN = "run the cell again; `%bitfusion log` shows the client's output."
TRY_AGAIN_OR_CHECK = "run the cell again; `bitfusion-kernel doctor` in a terminal checks this kernel."
USE_LESS_MEMORY = (
    "restart the kernel, unless Jupyter has done that already, and load less data at a time, "
    "or have the notebook started with more memory."
)


class FolderUnusable(BitfusionError):
    """The private folder is full, read-only, or can be made nowhere. `answered` names it and why."""

    headline = "The folder for this kernel's sockets cannot be used."
    next_step = (
        "make room there and run the cell again, or start Jupyter with XDG_RUNTIME_DIR set to a folder of "
        "yours that has room."
    )


class Device:
    """One GPU of the lease, as the pool describes it."""

    __slots__ = ("id", "memory_mib", "name", "server", "simulated", "total_mib")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.id = fields.get("id")
        self.name = str(fields.get("name", "GPU"))
        self.memory_mib = fields.get("memory_mib")
        self.total_mib = fields.get("total_mib")
        self.server = str(fields.get("server", ""))
        self.simulated = bool(fields.get("simulated", False))

    def describe(self) -> str:
        """`GPU 0: Simulated Tesla V100 – 8080 of 16160 MiB (simulated)`."""
        text = f"GPU {self.id}: {self.name}"
        if self.memory_mib is not None:
            total = f" of {self.total_mib}" if self.total_mib is not None else ""
            text += f" – {self.memory_mib}{total} MiB"
        return text + (" (simulated)" if self.simulated else "")


def devices_from_environment(environment: dict[str, str]) -> list[Device]:
    """The GPUs that the embedded pool describes to its child; empty under any other client."""
    try:
        fields = json.loads(environment.get("BITFUSION_POOL_DEVICES", "[]"))
        return [Device(entry) for entry in fields]
    except (ValueError, TypeError, AttributeError):
        return []


class Acquisition:
    """State of one wrapper. Times are `time.monotonic()` seconds."""

    def __init__(self, number: int, request: GpuRequest, now: float) -> None:
        self.number = number
        self.request = request
        self.asked_at = now
        self.kept = ""
        """What its kernel has and keeps while this waits for another size; empty if it has nothing."""
        self.held_since: float | None = None
        """When the pool granted it; over a restart it stays what it was."""
        self.granted = False
        """Whether the wrapper has got GPUs and runs the launcher, which has told of its kernel."""
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self.kernel_output: deque[str] = deque(maxlen=KERNEL_LINES)
        """The last lines that the kernel wrote to its real stdout and stderr, past IPython."""
        self._kernels_streams: set[str] = set()
        """Those of stdout and stderr on which the kernel may have written."""
        self._last_was_clients = False
        self.queue: Waiting | None = None
        """Where it stands in the queue, as the client has said last; None while it has said nothing of it."""
        self.pod_wait: PodWait | None = None
        """In a pod: the wait for its budget, which comes before the one for the pool."""
        self.outage: PoolOutage | None = None
        """When its pool was out of reach last, or is so now; None if it never was."""
        self.notes: list[str] = []
        """What the client wants the person to know of the GPUs, until the first cell has said it."""
        self.lost: PoolLost | PodEnded | None = None
        """What the client says of the pool, or the pod, that it has lost, and with it the kernel."""
        self.kernel_connection: ConnectionInfo | None = None
        """Where the kernel will listen."""
        self.server: str | None = None
        self.lock_file: str | None = None
        self.memory_mib: int | None = None
        self.gpu_ids: tuple[int, ...] = ()
        self.devices: list[Device] = []
        self.kernel_pid: int | None = None
        """None before there is a kernel, and for one that is not numbered among the processes here."""
        self.launcher_pid: int | None = None
        """Likewise."""
        self.kernel_status: int | None = None
        self.died_too_often = False
        """Whether the kernel has died so often that its GPUs went back to the pool for that."""
        self.memory_ran_out: bool | None = None
        """Whether Linux has killed processes for want of memory since the kernel runs; None if unknown."""
        self.wrapper_status: int | None = None

    def on_line(self, text: str, clock: float, stream: str = "stderr") -> bool:
        """One line of the wrapper's output, which came at `clock` seconds since the epoch.

        False if it is not the client's own (the kernel wrote it).
        """
        if text.endswith(KERNEL_SPEAKS):
            rest = text.removesuffix(KERNEL_SPEAKS)
            is_clients = not rest or self.on_line(rest, clock, stream)
            self._kernels_streams.add(stream)
            self._last_was_clients = False
            return is_clients
        from bitfusion_client.command import client_lines as lines  # nobody asks before the first line
        from bitfusion_client.command.client_output import parse_line

        if self.waits_for_pod and self._on_pod_line(text):
            return True
        line = parse_line(text)
        if self.granted or stream in self._kernels_streams:
            if isinstance(line, lines.Unknown):
                if not text.strip() and self._last_was_clients:
                    return True  # the client prints an empty line between its own
                self._last_was_clients = False
                if text.strip():
                    self.kernel_output.append(text.rstrip())
                return False
            if type(line) is lines.FatalError:  # of either
                self.kernel_output.append(text.rstrip())
                self.log.append(text)
                return False
        self._last_was_clients = True
        if isinstance(line, lines.Unknown):
            pass
        elif isinstance(line, lines.Waiting):
            self.queue = line
        elif isinstance(line, lines.Requesting):
            self.gpu_ids, self.memory_mib = tuple(line.gpu_ids), line.memory_mib
        elif isinstance(line, lines.Note):
            self.notes = [*self.notes, line.note][:MOST_NOTES]
        elif isinstance(line, lines.Locked):
            self.lock_file = line.lock_file
        elif isinstance(line, lines.ServerLine):
            # a node of a cluster has no port for this
            self.server = f"{line.host}:{line.srs_port}" if line.srs_port else line.host
        elif isinstance(line, (lines.OutOfReach, lines.BackInReach)):
            from bitfusion_kernel.gpu import pool_outage  # few kernels ever need it

            if isinstance(line, lines.OutOfReach):
                self.outage = pool_outage.noticed(line, self.outage, clock)
            else:
                self.outage = pool_outage.over(line, self.outage, clock)
        elif isinstance(line, (lines.PoolLost, lines.PodEnded)):
            self.lost = line
        self.log.append(text)
        return True

    def _on_pod_line(self, text: str) -> bool:
        """A line about the pod's budget; False for any other."""
        assert self.pod_wait is not None
        line = self.pod_wait.on_line(text)
        if line is None:
            return False
        from bitfusion_client.command.client_lines import Waiting

        self.log.append(text)
        self.queue = line if isinstance(line, Waiting) else None
        self.request = getattr(line, "request", self.request)
        return True

    def on_launched(self, event: LaunchedEvent, now: float) -> None:
        """The launcher runs under the wrapper: the GPUs are granted and the kernel is starting."""
        self.granted = True
        if self.held_since is None:
            self.held_since = now
        self.kernel_pid, self.launcher_pid = event.kernel_pid or None, event.launcher_pid or None
        self.devices = devices_from_environment(event.environment)

    @property
    def waits_for_pod(self) -> bool:
        """Whether the pool has not been asked yet, because other kernels of this pod hold its budget."""
        return self.pod_wait is not None and not self.pod_wait.over

    @property
    def takes_what_is_left(self) -> bool:
        """Whether it is what is left of the pod's budget, and no size."""
        return self.pod_wait is not None and self.pod_wait.takes_what_is_left

    @property
    def asked_for(self) -> str:
        """What is asked for, as text."""
        return self.request.describe() if self.pod_wait is None else self.pod_wait.describe(self.request)

    @property
    def simulated(self) -> bool:
        """Whether the GPUs are simulated, all of them: then the CPU computes."""
        return bool(self.devices) and all(device.simulated for device in self.devices)

    def why_it_ended(self, *, ran: bool = False) -> BitfusionError:
        """The error for the cell that waited, or that `ran`, once the wrapper is gone."""
        if self.lost is not None:
            from bitfusion_client import errors
            from bitfusion_client.command.client_lines import PodEnded

            if isinstance(self.lost, PodEnded):
                return errors.PodLost.from_text(self.request, self.lost.problem)
            return errors.PoolLost(self.request, self.lost.problem)
        if self.kernel_status is not None and (self.wrapper_status is None or self.wrapper_status >= 0):
            said = self._last_output(1 if ran else len(self.kernel_output))
            output = f"; its last output: {said}" if said else ""
            reason, next_step = self._why_killed(self.kernel_status)
            answer = f"the kernel process {describe_exit(self.kernel_status)}{reason}{output}"
            if self.died_too_often:
                answer += f"; it has died {deaths.MOST} times within a minute, so its GPU is given back"
            return KernelDied("", answer, next_step if ran else TRY_AGAIN_OR_CHECK)
        if self.granted:
            last = next((line for line in reversed(self.log) if line.strip()), "")
            output = f"; its last output: {last}" if last else ""
            ended = self.wrapper_status or 0
            status = from_shell(ended) or 0
            who = "`bitfusion run`" if status == ended else "the program under `bitfusion run`"
            reason, next_step = self._why_killed(status)
            answer = f"{who} {describe_exit(status)}{reason}{output}"
            return WrapperDied(self.request, answer, next_step if ran else TRY_AGAIN)
        from bitfusion_client.command.client_failure import (
            error_from_output,  # read only when something failed
        )

        return error_from_output(list(self.log), self.wrapper_status, self.request)

    def _last_output(self, most: int) -> str:
        """The kernel's last lines, at most so many: what one has said that ran may be of long ago."""
        said = ""
        for line in list(self.kernel_output)[::-1][:most]:
            longer = f"{line.strip()} | {said}" if said else line.strip()
            if said and len(longer) > LONGEST_LAST_OUTPUT:
                break
            said = longer
        return said

    def _why_killed(self, status: int) -> tuple[str, str]:
        """What a SIGKILL that nobody here has sent means, and what to do; empty if nothing special."""
        if status != -signal.SIGKILL or self.memory_ran_out is False:
            return "", ""
        if self.memory_ran_out:
            return ", because memory ran out", USE_LESS_MEMORY
        return ", as happens when memory runs out", ""
