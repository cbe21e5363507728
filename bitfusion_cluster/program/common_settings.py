"""Settings that every long-running program in a cluster has: credentials, namespace, monitoring, log.

Their groups in the help differ from program to program, so each program places the rows in its table.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from bitfusion_client.settings_table import (
    LOG_ROWS,
    Setting,
    address,
    parse_text,
    whole,
)

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
MONITORING = "monitoring and log"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, kw_only=True)
class ProgramSettings:
    """What every program with a log and monitoring runs with. `ignored`: see `GivenSettings`."""

    bind: str = "::"
    monitoring_port: int = 8080
    log_format: str = "json"
    log_level: str = "info"
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(ProgramSettings):
    """The same of one that has a Lease in the cluster, `name` in its own `namespace`."""

    namespace: str
    kubeconfig: str | None = None
    name: str = ""


def parse_object_name(text: str) -> str:
    """The name of a Kubernetes object."""
    if not _NAME.fullmatch(text):
        raise ValueError("must be the name of a Kubernetes object: lower case letters, digits, - and .")
    return text


def parse_label(text: str) -> str:
    """A DNS label: the name of a namespace, a Service, a ServiceAccount."""
    if not _LABEL.fullmatch(text):
        raise ValueError("must be at most 63 lower case letters, digits and -")
    return text


def parse_names(text: str) -> tuple[str, ...]:
    """DNS names and addresses, separated by commas."""
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in found:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if not _NAME.fullmatch(name.lower()):
                raise ValueError("must be DNS names or IP addresses, separated by commas") from None
    return found


parse_address = address("must be an IP address, 0.0.0.0 or :: for all")
parse_port = whole(0, 65535, "must be a port, 1 to 65535 (0: any free one)")


def kubeconfig_row(credentials: str = "") -> Setting:
    """Credentials for the cluster; `credentials` follows these words."""
    text = (
        f"credentials for the cluster{credentials}. Default: the pod's own; outside a cluster KUBECONFIG or "
        "~/.kube/config"
    )
    return Setting("kubeconfig", "FILE", text, parse_text)


def namespace_row(what: str) -> Setting:
    """The namespace of `what` it has in the cluster: "queue's own Lease is"."""
    return Setting("namespace", "NAMESPACE", f"where the {what}. Default: the pod's namespace", parse_label)


def name_row(what: str, default: str) -> Setting:
    """The name of `what` it has in the cluster: "the Lease"."""
    return Setting("name", "NAME", f"name of {what}. Default: {default}", parse_label)


BIND_ROW = Setting(
    "bind", "ADDRESS", "address to listen on. Default: ::, all addresses of IPv6 and IPv4", parse_address
)


def monitoring_port_row(port: int = 8080) -> Setting:
    """The port of its monitoring, by default `port`."""
    text = f"HTTP port of /healthz, /readyz and /metrics. Default: {port}"
    return Setting("monitoring_port", "PORT", text, parse_port)


def monitoring_rows(port: int = 8080) -> tuple[Setting, ...]:
    """For a program that listens for its monitoring alone, under the heading `MONITORING`."""
    return (BIND_ROW, monitoring_port_row(port), *LOG_ROWS)
