"""The settings of `bitfusion-queue`: one table for options, environment and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bitfusion_cluster.program.common_settings import MONITORING, kubeconfig_row, monitoring_rows
from bitfusion_cluster.program.settings_table import (
    NAMESPACE_FILE,
    Setting,
    SettingsTable,
    own_namespace,
    parse_label,
)
from bitfusion_device_plugin.queue.names import DEFAULT_NAME

CLUSTER, QUEUE = "the cluster", "the queue"
SHORTEST_STUCK_S, LONGEST_STUCK_S = 1.0, 86400.0


@dataclass(frozen=True)
class Settings:
    """What one process runs with; made by `read_settings`, read by `process.py`."""

    namespace: str
    kubeconfig: str | None = None
    name: str = DEFAULT_NAME
    stuck_after: float = 300.0
    bind: str = "::"
    monitoring_port: int = 8080
    log_format: str = "json"
    log_level: str = "info"
    ignored: tuple[str, ...] = ()


def parse_stuck_after(text: str) -> float:
    """Seconds, a day at most."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not SHORTEST_STUCK_S <= seconds <= LONGEST_STUCK_S:  # not a number: neither
        raise ValueError("must be seconds from 1 to 86400")
    return seconds


TABLE = SettingsTable(
    "BITFUSION_QUEUE_",
    (CLUSTER, QUEUE, MONITORING),
    (
        kubeconfig_row(CLUSTER),
        Setting(
            CLUSTER,
            "namespace",
            "NAMESPACE",
            "where the queue's own Lease is. Default: the pod's namespace",
            parse_label,
        ),
        Setting(CLUSTER, "name", "NAME", f"name of the Lease. Default: {DEFAULT_NAME}", parse_label),
        Setting(
            QUEUE,
            "stuck_after",
            "SECONDS",
            "a pod for which no node is found for so long goes to the end of the queue if others wait. "
            "Default: 300",
            parse_stuck_after,
        ),
        *monitoring_rows(),
    ),
)


def read_settings(
    options: Mapping[str, str | None], environ: Mapping[str, str], namespace_file: Path = NAMESPACE_FILE
) -> Settings:
    """Settings from options (by the names of `TABLE`, None: not given) and the environment.

    Raises WrongSetting, whose text is one line.
    """
    given = TABLE.read(options, environ)
    values = dict(given.values)
    if not values.get("namespace"):
        values["namespace"] = own_namespace(namespace_file, "the queue's")
    return Settings(**values, ignored=given.ignored)  # type: ignore[arg-type]  # as parsed
