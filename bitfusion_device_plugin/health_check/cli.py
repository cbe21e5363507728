"""The command `bitfusion-health-check`."""

from __future__ import annotations

from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.health_check.settings import TABLE, Settings, read_settings

DESCRIPTION = """\
Runs `bitfusion health` once and prints its report. The result is an Event on a CronJob, figures for a scrape,
and the exit status."""
EPILOG = f"""\
Each option can be given in the environment: --limit is {TABLE.prefix}LIMIT.
Options win.
Exit status: 0 no check is FATAL; 1 one is, or the pool could not be checked, or a signal ended it before;
2 a wrong setting. An Event that cannot be written changes none of it."""


def _run(settings: Settings) -> None:
    # The client of the cluster takes a third of a second to import: not for --help.
    from bitfusion_device_plugin.health_check.process import run

    run(settings)


PROGRAM = Program("bitfusion-health-check", DESCRIPTION, EPILOG, TABLE, read_settings, _run)
main = PROGRAM.main
