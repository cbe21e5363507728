"""The settings of `bitfusion-device-plugin`: one table for options, environment and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bitfusion_cluster.program.common_settings import MONITORING, monitoring_rows
from bitfusion_cluster.program.settings_table import (
    Setting,
    SettingsTable,
    one_of,
    parse_text,
)
from bitfusion_device_plugin.plugin.pool_size import LARGEST_UNITS

POOL, KUBELET = "the pool", "the kubelet"
WATCHER, CLASSIC = "watcher", "classic"
LARGEST_OVERCOMMIT = 100.0


@dataclass(frozen=True)
class Settings:
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
    bind: str = "::"
    monitoring_port: int = 9090
    log_format: str = "json"
    log_level: str = "info"
    ignored: tuple[str, ...] = ()


def _number(least: float, most: float, what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise ValueError(f"must be {what} from {least:g} to {most:g}")
        return value

    return parse


def _count(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return parse


def _folder(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must be the absolute path of a folder")
    return text


TABLE = SettingsTable(
    "BITFUSION_DEVICE_PLUGIN_",
    (POOL, KUBELET, MONITORING),
    (
        Setting(
            POOL,
            "client",
            "FILE",
            "the bitfusion command that is asked for the pool's GPUs. Default: the one on PATH, else the "
            "embedded pool's",
            parse_text,
        ),
        Setting(
            POOL,
            "units",
            "N",
            "offer so many units and do not ask the pool; they are always healthy then. Default: 100 for "
            "each GPU of the pool",
            _count(1, LARGEST_UNITS),
        ),
        Setting(
            POOL,
            "overcommit",
            "FACTOR",
            "how much the units may exceed the pool, since kernels hold GPUs only while they compute. "
            "Default: 1",
            _number(0.01, LARGEST_OVERCOMMIT, "a factor"),
        ),
        Setting(
            POOL,
            "probe_every",
            "SECONDS",
            "how often the pool is asked. Default: 15",
            _number(0.1, 3600, "seconds"),
        ),
        Setting(
            POOL,
            "probe_limit",
            "SECONDS",
            "how long an answer may take. Default: 10",
            _number(0.1, 300, "seconds"),
        ),
        Setting(
            POOL,
            "probe_away_every",
            "SECONDS",
            "how often a pool is asked that does not answer; every node does. Default: 1",
            _number(0.1, 3600, "seconds"),
        ),
        Setting(
            POOL,
            "unhealthy_after",
            "N",
            "no answer so many times in a row: new pods get no units; a smaller pool: fewer. Default: 3",
            _count(1, 100),
        ),
        Setting(
            POOL,
            "healthy_after",
            "N",
            "so many answers in a row: they do again. Default: 2",
            _count(1, 100),
        ),
        Setting(
            KUBELET,
            "registration",
            "WAY",
            f"{WATCHER}: the kubelet finds the plugin in --plugins-registry; {CLASSIC}: the plugin tells the "
            f"kubelet, in --device-plugins. Default: {WATCHER}",
            one_of(WATCHER, CLASSIC),
        ),
        Setting(
            KUBELET,
            "plugins_registry",
            "FOLDER",
            "of the kubelet's plugin watcher. Default: /var/lib/kubelet/plugins_registry",
            _folder,
        ),
        Setting(
            KUBELET,
            "device_plugins",
            "FOLDER",
            "of the kubelet's registration socket. Default: /var/lib/kubelet/device-plugins",
            _folder,
        ),
        *monitoring_rows(9090),
    ),
)


def read_settings(options: Mapping[str, str | None], environ: Mapping[str, str]) -> Settings:
    """Settings from options (by the names of `TABLE`, None: not given) and the environment.

    Raises WrongSetting, whose text is one line.
    """
    given = TABLE.read(options, environ)
    return Settings(**given.values, ignored=given.ignored)  # type: ignore[arg-type]  # as parsed
