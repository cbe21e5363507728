"""The command `bitfusion-identity`."""

from __future__ import annotations

from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.identity.settings import TABLE, Settings, read_settings

DESCRIPTION = """\
Gives every namespace with the label bitfusion.io/identity=true a token of the Bitfusion pool, in its Secret
bitfusion-client, and renews it in time. It can read and write that Secret only where an administrator has
applied the Role for it."""
EPILOG = f"""\
Each option can be given in the environment: --issuer-files is {TABLE.prefix}ISSUER_FILES.
Options win.
One replica works, elected by a Lease. While the pool is away Secrets stay as they are."""


def _run(settings: Settings) -> None:
    # The client of the cluster takes a third of a second to import: not for --help.
    from bitfusion_device_plugin.identity.process import run

    run(settings)


PROGRAM = Program("bitfusion-identity", DESCRIPTION, EPILOG, TABLE, read_settings, _run)
main = PROGRAM.main
