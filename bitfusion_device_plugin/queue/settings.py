"""The command `bitfusion-queue` and its settings: one table for options, environment and help."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.settings_table import Setting, SettingsTable, number, whole
from bitfusion_cluster.program.common_settings import (
    MONITORING,
    ClusterSettings,
    kubeconfig_row,
    monitoring_rows,
    name_row,
    namespace_row,
)
from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.queue.words import DEFAULT_NAME

LARGEST_UNITS = 100_000  # that a node offers


@dataclass(frozen=True, kw_only=True)
class Settings(ClusterSettings):
    """What one process runs with; made by `read_settings`, read by `process.py`."""

    name: str = DEFAULT_NAME
    stuck_after: float = 300.0
    units: int = 0


TABLE = SettingsTable(
    "BITFUSION_QUEUE_",
    {
        "the cluster": (
            kubeconfig_row(),
            namespace_row("queue's own Lease is"),
            name_row("the Lease", DEFAULT_NAME),
        ),
        "the queue": (
            Setting(
                "stuck_after",
                "SECONDS",
                "seconds after which a pod without a node goes to the end of the queue if others are "
                "waiting. "
                "Default: 300",
                number(1, 86400),
            ),
            Setting(
                "units",
                "N",
                "go by so many units while no node is there that could offer any, so that an autoscaler sees "
                "pods that need one: what a node will offer. Default: 0, pods wait at their gates then",
                whole(0, LARGEST_UNITS),
            ),
        ),
        MONITORING: monitoring_rows(),
    },
)


PROGRAM = Program(
    "bitfusion-queue",
    """\
Lets pods that ask for units of the Bitfusion pool start in order of their creation, and only while their
units are free. They wait at the scheduling gate bitfusion.io/queue, which the injector sets.""",
    "stuck_after",
    """\
One replica works, elected by a Lease. Kubernetes has scheduling gates since 1.27; before, pods are only
counted.""",
    TABLE,
    Settings,
    "bitfusion_device_plugin.queue.process",
    "the queue's Service",
)
main, read_settings = PROGRAM.main, PROGRAM.read
