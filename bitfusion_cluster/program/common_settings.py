"""Settings that every long-running program in the cluster has: its credentials, its monitoring, its log.

Their groups in the help differ from program to program, so each row is made for one.
"""

from __future__ import annotations

from bitfusion_client.structured_logs import FORMATS
from bitfusion_cluster.program.settings_table import Setting, one_of, parse_address, parse_port, parse_text

LOG_LEVELS = ("debug", "info", "warning", "error")
MONITORING = "monitoring and log"


def kubeconfig_row(group: str, credentials: str = "") -> Setting:
    """Credentials for the cluster; `credentials` follows these words."""
    return Setting(
        group,
        "kubeconfig",
        "FILE",
        f"credentials for the cluster{credentials}. Default: the pod's own; outside a cluster KUBECONFIG or "
        "~/.kube/config",
        parse_text,
    )


def bind_row(group: str) -> Setting:
    """The address of all its listeners."""
    return Setting(
        group,
        "bind",
        "ADDRESS",
        "address to listen on. Default: ::, all addresses of IPv6 and IPv4",
        parse_address,
    )


def monitoring_port_row(group: str, port: int = 8080) -> Setting:
    """The port of its monitoring, by default `port`."""
    text = f"HTTP port of /healthz, /readyz and /metrics. Default: {port}"
    return Setting(group, "monitoring_port", "PORT", text, parse_port)


def log_rows(group: str) -> tuple[Setting, Setting]:
    """Format and level of its log."""
    return (
        Setting(group, "log_format", "FORMAT", "json, or text for people. Default: json", one_of(*FORMATS)),
        Setting(group, "log_level", "LEVEL", f"{', '.join(LOG_LEVELS)}. Default: info", one_of(*LOG_LEVELS)),
    )


def monitoring_rows(port: int = 8080) -> tuple[Setting, ...]:
    """For a program that listens for its monitoring alone."""
    return (bind_row(MONITORING), monitoring_port_row(MONITORING, port), *log_rows(MONITORING))
