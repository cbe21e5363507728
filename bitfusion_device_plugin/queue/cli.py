"""The command `bitfusion-queue`."""

from __future__ import annotations

from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.queue.settings import TABLE, Settings, read_settings

DESCRIPTION = """\
Lets pods that ask for units of the Bitfusion pool start in order of their creation, and only while their
units are free. They wait at the scheduling gate bitfusion.io/queue, which the injector sets."""
EPILOG = f"""\
Each option can be given in the environment: --stuck-after is {TABLE.prefix}STUCK_AFTER.
Options win.
One replica works, elected by a Lease. Kubernetes has scheduling gates since 1.27; before, pods are only
counted."""


def _run(settings: Settings) -> None:
    # The client of the cluster takes a third of a second to import: not for --help.
    from bitfusion_device_plugin.queue.process import run

    run(settings)


PROGRAM = Program("bitfusion-queue", DESCRIPTION, EPILOG, TABLE, read_settings, _run)
main = PROGRAM.main
