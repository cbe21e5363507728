"""Imports what the proxy put off for its first reply, once that has long been sent.

A kernel may run for days, and an update may replace the package's files under it. What its proxy imported
only then would be another version's, and the first `%bitfusion` of the day could be the end of the kernel.
What has been imported stays as it is.
"""

from __future__ import annotations

import importlib
import os
import time

from bitfusion_kernel.proxy.event_loop import EventLoop
from bitfusion_kernel.settings.config_path import config_files_exist

BEGIN_AFTER = 5.0
"""Seconds after the proxy's start; a first cell that was sent at once has run by then."""

PAUSE = 0.02
"""Seconds between two modules, of which few take more than 5 ms. Sockets are served meanwhile."""

MODULES = (
    "bitfusion_client.errors",
    "bitfusion_client.command.find_client",
    "bitfusion_client.pod.oom_kills",
    "bitfusion_client.request.quantities",
    "bitfusion_client.request.shares",
    "bitfusion_kernel.gpu.acquisition",
    "bitfusion_kernel.gpu.cell_path",
    "bitfusion_kernel.gpu.kept_lease",
    "bitfusion_kernel.gpu.own_name",
    "bitfusion_kernel.gpu.pod_wait",
    "bitfusion_kernel.gpu.request_note",
    "bitfusion_kernel.gpu.start_place",
    "bitfusion_kernel.gpu.time_limits",
    "bitfusion_kernel.gpu.waiting_notice",
    "bitfusion_kernel.magic.commands",
    "bitfusion_kernel.magic.completion",
    "bitfusion_kernel.magic.subshell_ids",
    "bitfusion_kernel.offline.code_completeness",
    "bitfusion_kernel.offline.history",
    "bitfusion_kernel.offline.usage",
    "bitfusion_kernel.pod.account",
    "bitfusion_kernel.pod.budget",
    "bitfusion_kernel.processes.kernel_start",
    "bitfusion_kernel.processes.launcher",
    "bitfusion_kernel.protocol.message_date",
    "bitfusion_kernel.proxy.cells.client_command",
    "bitfusion_kernel.proxy.cells.command_cell",
    "bitfusion_kernel.proxy.cells.lost_reply",
    "bitfusion_kernel.proxy.cells.question",
    "bitfusion_kernel.proxy.give_back",
    "bitfusion_kernel.proxy.idle_watch",
    "bitfusion_kernel.proxy.kernel_events",
    "bitfusion_kernel.proxy.magic_socket",
    "bitfusion_kernel.proxy.orders",
    "bitfusion_kernel.proxy.resize",
    "bitfusion_kernel.proxy.state_board",
    "bitfusion_kernel.proxy.state_log",
    "bitfusion_kernel.proxy.kernel.kernel_interrupt",
    "bitfusion_kernel.proxy.kernel.kernel_sockets",
    "bitfusion_kernel.proxy.jupyter.jupyter_log",
    "bitfusion_kernel.proxy.jupyter.starters",
    "bitfusion_kernel.proxy.kernel.output_relay",
    "bitfusion_kernel.proxy.requests.refusals",
    "bitfusion_kernel.settings.resolve",
    "bitfusion_kernel.settings.own_kernelspec",
    "bitfusion_kernel.settings.unknown_variables",
)
"""Those that some function imports, in the order of their import; they bring all others."""

CONFIG_MODULE = "bitfusion_kernel.settings.config_files"
"""Needed only where there are config files, as it brings traitlets: 30 ms and 3 MB."""


def begin(loop: EventLoop, modules: tuple[str, ...] = MODULES) -> None:
    """Have the modules imported by the loop, one at a time. Called once, when the proxy begins to serve."""
    pending = [*modules]
    if config_files_exist(os.environ):
        pending.append(CONFIG_MODULE)

    def import_next() -> None:
        try:
            importlib.import_module(pending.pop(0))
        except Exception:
            # The files are being replaced right now. Whoever needs the module will tell.
            return
        if pending:
            set_timer(PAUSE)

    def set_timer(seconds: float) -> None:
        loop.set_timer("late imports", time.monotonic() + seconds, import_next)

    set_timer(BEGIN_AFTER)
