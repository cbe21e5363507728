"""The command `bitfusion-device-plugin`."""

from __future__ import annotations

from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.plugin.settings import TABLE, Settings, read_settings

DESCRIPTION = """\
Offers the Bitfusion pool to the kubelet of one node, as units of bitfusion.io/gpu: 100 for each GPU. Every
node offers the same pool. While the pool does not answer no new pod gets any; those that run stay."""
EPILOG = f"""\
Each option can be given in the environment: --probe-every is {TABLE.prefix}PROBE_EVERY.
Options win."""


def _run(settings: Settings) -> None:
    # gRPC takes a fifth of a second to import: not for --help.
    from bitfusion_device_plugin.plugin.process import run

    run(settings)


PROGRAM = Program("bitfusion-device-plugin", DESCRIPTION, EPILOG, TABLE, read_settings, _run, "device-plugin")
main = PROGRAM.main
