"""The settings of `bitfusion-notebook-controller`: one table for the options, the environment and the help.

Every setting can be given as an option (``--monitoring-port 8080``) or in the environment
(``BITFUSION_CONTROLLER_MONITORING_PORT=8080``); the option wins, an empty variable counts as absent.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bitfusion_client.client_images import ANY, CLIENT_LISTS
from bitfusion_client.errors import WrongSetting
from bitfusion_client.structured_logs import FORMATS

PREFIX = "BITFUSION_CONTROLLER_"
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_NAME = "bitfusion-notebook-controller"
DEFAULT_WEBHOOKS = "bitfusion-notebook-admission"
LOG_LEVELS = ("debug", "info", "warning", "error")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, slots=True)
class Settings:
    """What one controller process runs with; made by `read_settings`, read by `controller.py`."""

    namespace: str
    kubeconfig: str | None = None
    name: str = DEFAULT_NAME
    bind: str = "::"
    port: int = 8443
    monitoring_port: int = 8080
    images: str | None = None
    clients: str = ANY
    certificate_folder: str | None = None
    certificate_secret: str | None = None
    certificate_names: tuple[str, ...] = ()
    client_authority: str | None = None
    webhook_configuration: str = DEFAULT_WEBHOOKS
    drain: float = 5.0
    log_format: str = "json"
    log_level: str = "info"
    ignored: tuple[str, ...] = ()  # variables with our prefix that are no setting

    @property
    def username(self) -> str:
        """As whom the apiserver knows the controller: its ServiceAccount has its name."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table. `parse` turns text into the value or raises ValueError: what is allowed."""

    group: str  # one of GROUPS
    name: str  # as in Settings
    metavar: str
    help: str
    parse: Callable[[str], object]

    @property
    def option(self) -> str:
        """``--monitoring-port``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """``BITFUSION_CONTROLLER_MONITORING_PORT``."""
        return PREFIX + self.name.upper()


def _text(text: str) -> str:
    return text


def _object_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("must be the name of a Kubernetes object: lower case letters, digits, - and .")
    return text


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError("must be at most 63 lower case letters, digits and -")
    return text


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("must be an IP address, 0.0.0.0 or :: for all") from None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:6]) <= 65535):
        raise ValueError("must be a port, 1 to 65535 (0: any free one)")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 10:
        raise ValueError("must be seconds from 0 to 10")
    return seconds


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError("must be one of " + ", ".join(words))
        return text

    return parse


def _names(text: str) -> tuple[str, ...]:
    found = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in found:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            if not _NAME.fullmatch(name.lower()):
                raise ValueError("must be DNS names or IP addresses, separated by commas") from None
    return found


CLUSTER, SERVING, CERTIFICATES, LOGS = "the cluster", "serving", "certificates", "logs"
GROUPS = (CLUSTER, SERVING, CERTIFICATES, LOGS)

TABLE = (
    Setting(
        CLUSTER,
        "kubeconfig",
        "FILE",
        "credentials for the cluster, those of the ServiceAccount: admission holds back what anybody else "
        "writes in a running template. Default: the pod's own; outside a cluster KUBECONFIG or "
        "~/.kube/config",
        _text,
    ),
    Setting(
        CLUSTER,
        "namespace",
        "NAMESPACE",
        "where the controller's own Service, Lease and Secret are. Default: the pod's namespace",
        _label,
    ),
    Setting(
        CLUSTER,
        "name",
        "NAME",
        f"name of the controller's Service, ServiceAccount and Lease. Default: {DEFAULT_NAME}",
        _label,
    ),
    Setting(
        SERVING,
        "bind",
        "ADDRESS",
        "address to listen on. Default: ::, all addresses of IPv6 and IPv4",
        _address,
    ),
    Setting(SERVING, "port", "PORT", "HTTPS port the apiserver calls. Default: 8443", _port),
    Setting(
        SERVING,
        "monitoring_port",
        "PORT",
        "HTTP port of /healthz, /readyz and /metrics. Default: 8080",
        _port,
    ),
    Setting(
        SERVING,
        "images",
        "FILE",
        "YAML list of {image, os, version}: which Bitfusion client fits which notebook image. Read again "
        "when it changes. Default: the rules for Kubeflow's own images",
        _text,
    ),
    Setting(
        SERVING,
        "clients",
        "LIST",
        "which clients the rules may name: any, or vmware, those that VMware's injector has; it refuses pods "
        "with another one, such as ubuntu22 454. Default: any",
        _one_of(*CLIENT_LISTS),
    ),
    Setting(
        CERTIFICATES,
        "certificate_folder",
        "FOLDER",
        "serve the certificate in FOLDER/tls.crt and tls.key (a mounted Secret of cert-manager's). Read "
        "again when it changes. caBundle is then not ours to write",
        _text,
    ),
    Setting(
        CERTIFICATES,
        "certificate_secret",
        "NAME",
        "without cert-manager: keep an own certificate authority in this Secret and write it into the "
        "caBundle of --webhook-configuration. This is the default, with a Secret named as the controller "
        "and -ca",
        _object_name,
    ),
    Setting(
        CERTIFICATES,
        "certificate_names",
        "NAMES",
        "further DNS names and addresses for the built-in certificate, separated by commas: needed only "
        "if the apiserver calls a URL instead of the Service",
        _names,
    ),
    Setting(
        CERTIFICATES,
        "client_authority",
        "FILE",
        "PEM file of a certificate authority: reviews are taken only from who shows a certificate that it "
        "signed. Read again when it changes. The apiserver shows one only if it was told to. Default: "
        "nobody is asked for a certificate",
        _text,
    ),
    Setting(
        CLUSTER,
        "webhook_configuration",
        "NAME",
        f"the MutatingWebhookConfiguration that calls this controller. Default: {DEFAULT_WEBHOOKS}",
        _object_name,
    ),
    Setting(
        SERVING,
        "drain",
        "SECONDS",
        "how long requests are still taken after SIGTERM, until every apiserver knows that this replica "
        "leaves. Default: 5",
        _seconds,
    ),
    Setting(LOGS, "log_format", "FORMAT", "json, or text for people. Default: json", _one_of(*FORMATS)),
    Setting(LOGS, "log_level", "LEVEL", f"{', '.join(LOG_LEVELS)}. Default: info", _one_of(*LOG_LEVELS)),
)


def read_settings(
    options: Mapping[str, str | None],
    environ: Mapping[str, str],
    namespace_file: Path = NAMESPACE_FILE,
) -> Settings:
    """Settings from options (by the names of `TABLE`, None: not given) and the environment.

    Raises WrongSetting, whose text is one line: the setting, its value, where it came from, what is allowed.
    """
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for setting in TABLE:
        text, source = options.get(setting.name), setting.option
        if text is None:
            text, source = environ.get(setting.variable) or None, setting.variable
        if text is None:
            continue
        try:
            values[setting.name] = setting.parse(text)
        except ValueError as error:
            raise WrongSetting(source, text, str(error)) from None
        sources[setting.name] = source
    known = {setting.variable for setting in TABLE}
    ignored = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    values["ignored"] = tuple(ignored)
    if "namespace" not in values:
        values["namespace"] = _own_namespace(namespace_file)
    _choose_certificate(values, sources)
    return Settings(**values)  # type: ignore[arg-type]  # each parser of TABLE returns its field's type


def _own_namespace(file: Path) -> str:
    try:
        return _label(file.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        raise WrongSetting(
            "--namespace", "", "must be given outside a pod: the namespace of the controller's Service"
        ) from None


def _choose_certificate(values: dict[str, object], sources: Mapping[str, str]) -> None:
    if not values.get("certificate_folder"):
        values.setdefault("certificate_secret", f"{values.get('name', DEFAULT_NAME)}-ca")
        return
    for name in ("certificate_secret", "certificate_names"):
        if name in values:
            shown = values[name]
            raise WrongSetting(
                sources[name],
                shown if isinstance(shown, str) else ",".join(shown),  # type: ignore[arg-type]  # names
                f"cannot go with {sources['certificate_folder']}: certificates come from one place",
            )
