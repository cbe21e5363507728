"""The command `bitfusion-notebook-controller`."""

from __future__ import annotations

from bitfusion_cluster.program.program import Program
from notebook_controller_patch.settings import TABLE, Settings, read_settings

DESCRIPTION = """\
Carries GPU requests of Kubeflow notebooks to their pods: Notebook and StatefulSet admission, and the
reconciler that heals what admission missed. Every replica answers admission; one of them, elected by a
Lease, reconciles. It never restarts a running notebook."""
EPILOG = f"""\
Each option can be given in the environment: --monitoring-port is {TABLE.prefix}MONITORING_PORT.
Options win.
SIGTERM and SIGINT end it within 20 seconds: not ready, requests answered, lease released.
Ready (/readyz) means: a certificate is there, the apiserver trusts it, and the notebooks have been read."""


def _run(settings: Settings) -> None:
    # The client of the cluster and the server take a third of a second to import: not for --help.
    from notebook_controller_patch.controller import run

    run(settings)


PROGRAM = Program("bitfusion-notebook-controller", DESCRIPTION, EPILOG, TABLE, read_settings, _run)
main = PROGRAM.main
settings_of = PROGRAM.settings_of
