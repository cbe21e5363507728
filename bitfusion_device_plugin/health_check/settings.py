"""The settings of `bitfusion-health-check`: one table for options, environment and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from notebook_controller_patch.settings_table import (
    NAMESPACE_FILE,
    Setting,
    SettingsTable,
    own_namespace,
    parse_label,
    parse_object_name,
    parse_text,
)

POOL, CLUSTER, MONITORING = "the pool", "the cluster", "monitoring"
DEFAULT_NAME = "bitfusion-health"
LEAST_S, MOST_S = 1, 3600


@dataclass(frozen=True)
class Settings:
    """What one run goes by; made by `read_settings`."""

    namespace: str = ""
    client: str | None = None
    limit: float = 300.0
    cron_job: str = DEFAULT_NAME
    kubeconfig: str | None = None
    pushgateway: str = ""


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not LEAST_S <= seconds <= MOST_S:
        raise ValueError(f"must be seconds from {LEAST_S} to {MOST_S}")
    return seconds


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_right = False
    if not is_right:
        raise ValueError("must be an address such as http://pushgateway.monitoring:9091")
    return text


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
        Setting(POOL, "limit", "SECONDS", "how long the whole check may take. Default: 300", _seconds),
        Setting(
            CLUSTER,
            "cron_job",
            "NAME",
            f"the CronJob that gets the Event. Default: {DEFAULT_NAME}",
            parse_object_name,
        ),
        Setting(CLUSTER, "namespace", "NAME", "where it is. Default: the pod's own", parse_label),
        Setting(
            CLUSTER,
            "kubeconfig",
            "FILE",
            "credentials for the cluster. Default: the pod's own; outside a cluster KUBECONFIG or "
            "~/.kube/config",
            parse_text,
        ),
        Setting(
            MONITORING,
            "pushgateway",
            "URL",
            "where the figures of the run are pushed to, such as http://pushgateway.monitoring:9091. "
            "Default: nowhere",
            _address,
        ),
    ),
)


def read_settings(
    options: Mapping[str, str | None], environ: Mapping[str, str], namespace_file: Path = NAMESPACE_FILE
) -> Settings:
    """Settings from options (by the names of `TABLE`, None: not given) and the environment.

    Raises WrongSetting, whose text is one line.
    """
    values = dict(TABLE.read(options, environ).values)
    if not values.get("namespace"):
        values["namespace"] = own_namespace(namespace_file, "the CronJob's")
    return Settings(**values)  # type: ignore[arg-type] # by the table's parsers
