"""The command `bitfusion-health-check` and its settings: one table for options, environment and help."""

from __future__ import annotations

from dataclasses import dataclass

from bitfusion_client.settings_table import Setting, SettingsTable, number, parse_text
from bitfusion_cluster.program.common_settings import (
    kubeconfig_row,
    parse_address,
    parse_label,
    parse_object_name,
    parse_port,
)
from bitfusion_cluster.program.program import Program

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


TABLE = SettingsTable(
    "BITFUSION_HEALTH_CHECK_",
    {
        "the pool": (
            Setting(
                "client",
                "FILE",
                "the bitfusion command to run. Default: the one on PATH, else the embedded pool's",
                parse_text,
            ),
            Setting(
                "limit", "SECONDS", "seconds that the whole check may take. Default: 300", number(1, MOST_S)
            ),
        ),
        "the cluster": (
            Setting(
                "cron_job",
                "NAME",
                f"the CronJob on which the Event is recorded. Default: {DEFAULT_NAME}",
                parse_object_name,
            ),
            Setting("namespace", "NAME", "its namespace. Default: the pod's own", parse_label),
            kubeconfig_row(),
        ),
        "monitoring": (
            Setting(
                "show_metrics",
                "SECONDS",
                "seconds to keep running after the check so that its metrics can be scraped. Default: 0",
                number(0, MOST_S),
            ),
            Setting(
                "bind",
                "ADDRESS",
                "address on which the metrics are served. Default: ::, all addresses of IPv6 and IPv4",
                parse_address,
            ),
            Setting("monitoring_port", "PORT", "HTTP port of /metrics. Default: 8080", parse_port),
        ),
    },
)


PROGRAM = Program(
    "bitfusion-health-check",
    """\
Runs `bitfusion health` once and prints its report. The result is an Event on a CronJob, metrics for a scrape,
and the exit status.""",
    "limit",
    """\
Exit status: 0 no check is FATAL; 1 one is, the pool could not be checked, or a signal ended the check;
2 a wrong setting. An Event that cannot be written does not change it.""",
    TABLE,
    Settings,
    "bitfusion_device_plugin.health_check.process",
    "the CronJob",
)
main, read_settings = PROGRAM.main, PROGRAM.read
