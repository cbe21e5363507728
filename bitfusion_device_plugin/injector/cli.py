"""The command `bitfusion-injector`."""

from __future__ import annotations

from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.injector.settings import TABLE, Settings, read_settings

DESCRIPTION = """\
Puts the Bitfusion client into pods that ask for its GPUs, and translates what they ask for into the resource
that nodes offer: admission of pods. Every replica answers; one of them, elected by a Lease, tells the
apiserver whom to trust."""
EPILOG = f"""\
Each option can be given in the environment: --monitoring-port is {TABLE.prefix}MONITORING_PORT.
Options win.
SIGTERM and SIGINT end it within 20 seconds: not ready, requests answered, lease released.
Ready (/readyz) means: a certificate is there, and the apiserver trusts it."""


def _run(settings: Settings) -> None:
    # The client of the cluster and the server take a third of a second to import: not for --help.
    from bitfusion_device_plugin.injector.process import run

    run(settings)


PROGRAM = Program("bitfusion-injector", DESCRIPTION, EPILOG, TABLE, read_settings, _run)
main = PROGRAM.main
settings_of = PROGRAM.settings_of
