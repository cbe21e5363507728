"""The settings of `bitfusion-health-check`: one table for options, environment and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bitfusion_client.errors import WrongSetting
from bitfusion_cluster.program.common_settings import kubeconfig_row
from bitfusion_cluster.program.settings_table import (
    NAMESPACE_FILE,
    Setting,
    SettingsTable,
    own_namespace,
    parse_address,
    parse_label,
    parse_object_name,
    parse_port,
    parse_text,
)

POOL, CLUSTER, MONITORING = "the pool", "the cluster", "monitoring"
DEFAULT_NAME = "bitfusion-health"
MOST_S = 3600


@dataclass(frozen=True)
class Settings:
    """What one run goes by; made by `read_settings`."""

    namespace: str = ""
    client: str | None = None
    limit: float = 300.0
    cron_job: str = DEFAULT_NAME
    kubeconfig: str | None = None
    show_metrics: float = 0.0
    bind: str = "::"
    monitoring_port: int = 8080
    ignored: tuple[str, ...] = ()


def _seconds(least: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            seconds = float(text)
        except ValueError:
            seconds = least - 1
        if not least <= seconds <= MOST_S:  # not a number: neither
            raise ValueError(f"must be seconds from {least:g} to {MOST_S}")
        return seconds

    return parse


TABLE = SettingsTable(
    "BITFUSION_HEALTH_CHECK_",
    (POOL, CLUSTER, MONITORING),
    (
        Setting(
            POOL,
            "client",
            "FILE",
            "the bitfusion command that is run. Default: the one on PATH, else the embedded pool's",
            parse_text,
        ),
        Setting(POOL, "limit", "SECONDS", "how long the whole check may take. Default: 300", _seconds(1)),
        Setting(
            CLUSTER,
            "cron_job",
            "NAME",
            f"the CronJob that gets the Event. Default: {DEFAULT_NAME}",
            parse_object_name,
        ),
        Setting(CLUSTER, "namespace", "NAME", "where it is. Default: the pod's own", parse_label),
        kubeconfig_row(CLUSTER),
        Setting(
            MONITORING,
            "show_metrics",
            "SECONDS",
            "stay so long after the check and show its figures, for a scrape. Default: 0, not at all",
            _seconds(0),
        ),
        Setting(
            MONITORING,
            "bind",
            "ADDRESS",
            "address to listen on then. Default: ::, all addresses of IPv6 and IPv4",
            parse_address,
        ),
        Setting(
            MONITORING,
            "monitoring_port",
            "PORT",
            "HTTP port of /metrics. Default: 8080",
            parse_port,
        ),
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
        try:
            values["namespace"] = own_namespace(namespace_file, "the CronJob's")
        except WrongSetting:
            allowed = "must be given outside a pod: the namespace of the CronJob"
            raise WrongSetting("--namespace", "", allowed) from None
    return Settings(**values, ignored=given.ignored)  # type: ignore[arg-type] # by the table's parsers
