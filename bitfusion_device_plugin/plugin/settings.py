"""The command `bitfusion-device-plugin` and its settings: one table for options, environment and help."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.settings_table import Setting, SettingsTable, number, one_of, parse_text, whole
from bitfusion_cluster.program.common_settings import (
    MONITORING,
    ProgramSettings,
    monitoring_rows,
)
from bitfusion_cluster.program.program import Program
from bitfusion_device_plugin.plugin.pool_size import LARGEST_UNITS

WATCHER, CLASSIC = "watcher", "classic"
LARGEST_OVERCOMMIT = 100.0


@dataclass(frozen=True, kw_only=True)
class Settings(ProgramSettings):
    """What one process runs with; made by `read_settings`, read by `process.py`."""

    client: str | None = None
    units: int | None = None
    overcommit: float = 1.0
    probe_every: float = 15.0
    probe_limit: float = 10.0
    probe_away_every: float = 1.0
    unhealthy_after: int = 3
    healthy_after: int = 2
    registration: str = WATCHER
    plugins_registry: str = "/var/lib/kubelet/plugins_registry"
    device_plugins: str = "/var/lib/kubelet/device-plugins"
    monitoring_port: int = 9090


def _folder(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must be the absolute path of a folder")
    return text


TABLE = SettingsTable(
    "BITFUSION_DEVICE_PLUGIN_",
    {
        "the pool": (
            Setting(
                "client",
                "FILE",
                "the bitfusion command that reports the pool's GPUs. Default: the one on PATH, else the "
                "embedded pool's",
                parse_text,
            ),
            Setting(
                "units",
                "N",
                "offer this number of units, always healthy, without asking the pool. Default: 100 for "
                "each GPU of the pool",
                whole(1, LARGEST_UNITS),
            ),
            Setting(
                "overcommit",
                "FACTOR",
                "factor by which the units may exceed the pool, because kernels hold GPUs only while they "
                "compute. "
                "Default: 1",
                number(0.01, LARGEST_OVERCOMMIT, "a factor"),
            ),
            Setting(
                "probe_every",
                "SECONDS",
                "seconds between two queries of the pool. Default: 15",
                number(0.1, 3600),
            ),
            Setting(
                "probe_limit", "SECONDS", "seconds that an answer may take. Default: 10", number(0.1, 300)
            ),
            Setting(
                "probe_away_every",
                "SECONDS",
                "seconds between two queries of a pool that does not answer; every node sends them. "
                "Default: 1",
                number(0.1, 3600),
            ),
            Setting(
                "unhealthy_after",
                "N",
                "after this number of failed queries in a row new pods get no units; after this number of "
                "smaller answers, fewer. Default: 3",
                whole(1, 100),
            ),
            Setting(
                "healthy_after",
                "N",
                "after this number of answers in a row new pods get units again. Default: 2",
                whole(1, 100),
            ),
        ),
        "the kubelet": (
            Setting(
                "registration",
                "WAY",
                f"{WATCHER}: the kubelet finds the plugin in --plugins-registry; {CLASSIC}: the plugin tells "
                f"the kubelet, in --device-plugins. Default: {WATCHER}",
                one_of(WATCHER, CLASSIC),
            ),
            Setting(
                "plugins_registry",
                "FOLDER",
                "of the kubelet's plugin watcher. Default: /var/lib/kubelet/plugins_registry",
                _folder,
            ),
            Setting(
                "device_plugins",
                "FOLDER",
                "of the kubelet's registration socket. Default: /var/lib/kubelet/device-plugins",
                _folder,
            ),
        ),
        MONITORING: monitoring_rows(9090),
    },
)


PROGRAM = Program(
    "bitfusion-device-plugin",
    """\
Offers the Bitfusion pool to the kubelet of one node, as units of bitfusion.io/gpu: 100 for each GPU. Every
node offers the same pool. While the pool does not answer, new pods get none; running pods keep theirs.""",
    "probe_every",
    "",
    TABLE,
    Settings,
    "bitfusion_device_plugin.plugin.process",
    extra="device-plugin",
)
main, read_settings = PROGRAM.main, PROGRAM.read
