"""The settings that every process has which serves webhooks: where it listens, its certificate, its log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bitfusion_client.errors import WrongSetting
from bitfusion_cluster.program.common_settings import (
    bind_row,
    kubeconfig_row,
    log_rows,
    monitoring_port_row,
)
from bitfusion_cluster.program.settings_table import (
    Setting,
    parse_label,
    parse_names,
    parse_object_name,
    parse_port,
    parse_short_time,
    parse_text,
)

CLUSTER, SERVING, CERTIFICATES, LOGS = "the cluster", "serving", "certificates", "logs"
GROUPS = (CLUSTER, SERVING, CERTIFICATES, LOGS)


@dataclass(frozen=True)
class ServingSettings:
    """What `serving_process.py` reads. Each process has a class of its own with its defaults and the rest.

    Attributes:
        name: Of the process's Service, ServiceAccount and Lease.
        webhook_configuration: The MutatingWebhookConfiguration that calls it.
        ignored: Variables with its prefix that are no setting.
    """

    namespace: str
    kubeconfig: str | None = None
    name: str = ""
    bind: str = "::"
    port: int = 8443
    monitoring_port: int = 8080
    certificate_folder: str | None = None
    certificate_secret: str | None = None
    certificate_names: tuple[str, ...] = ()
    client_authority: str | None = None
    webhook_configuration: str = ""
    drain: float = 5.0
    log_format: str = "json"
    log_level: str = "info"
    ignored: tuple[str, ...] = ()


def cluster_rows(what: str, name: str, webhooks: str, credentials: str = "") -> tuple[Setting, ...]:
    """The rows about the cluster, in the words of `what` ("controller"), with its defaults.

    `credentials` follows the words "credentials for the cluster".
    """
    return (
        kubeconfig_row(CLUSTER, credentials),
        Setting(
            CLUSTER,
            "namespace",
            "NAMESPACE",
            f"where the {what}'s own Service, Lease and Secret are. Default: the pod's namespace",
            parse_label,
        ),
        Setting(
            CLUSTER,
            "name",
            "NAME",
            f"name of the {what}'s Service, ServiceAccount and Lease. Default: {name}",
            parse_label,
        ),
        Setting(
            CLUSTER,
            "webhook_configuration",
            "NAME",
            f"the MutatingWebhookConfiguration that calls this {what}. Default: {webhooks}",
            parse_object_name,
        ),
    )


def certificate_rows(what: str) -> tuple[Setting, ...]:
    """The rows about certificates, in the words of `what` ("controller")."""
    return (
        Setting(
            CERTIFICATES,
            "certificate_folder",
            "FOLDER",
            "serve the certificate in FOLDER/tls.crt and tls.key (a mounted Secret of cert-manager's). Read "
            "again when it changes. caBundle is then not ours to write",
            parse_text,
        ),
        Setting(
            CERTIFICATES,
            "certificate_secret",
            "NAME",
            "without cert-manager: keep an own certificate authority in this Secret and write it into the "
            f"caBundle of --webhook-configuration. This is the default, with a Secret named as the {what} "
            "and -ca",
            parse_object_name,
        ),
        Setting(
            CERTIFICATES,
            "certificate_names",
            "NAMES",
            "further DNS names and addresses for the built-in certificate, separated by commas: needed only "
            "if the apiserver calls a URL instead of the Service",
            parse_names,
        ),
        Setting(
            CERTIFICATES,
            "client_authority",
            "FILE",
            "PEM file of a certificate authority: reviews are taken only from who shows a certificate that "
            "it signed. Read again when it changes. The apiserver shows one only if it was told to. Default: "
            "nobody is asked for a certificate",
            parse_text,
        ),
    )


LISTENING_ROWS = (
    bind_row(SERVING),
    Setting(SERVING, "port", "PORT", "HTTPS port the apiserver calls. Default: 8443", parse_port),
    monitoring_port_row(SERVING),
)

PROCESS_ROWS = (
    Setting(
        SERVING,
        "drain",
        "SECONDS",
        "how long requests are still taken after SIGTERM, until every apiserver knows that this replica "
        "leaves. Default: 5",
        parse_short_time,
    ),
    *log_rows(LOGS),
)


def choose_certificate(values: dict[str, object], sources: Mapping[str, str], name: str) -> None:
    """Fill in the authority's Secret, named after `name`, where no folder is given.

    Raises WrongSetting where certificates would come from two places.
    """
    if not values.get("certificate_folder"):
        values.setdefault("certificate_secret", f"{values.get('name', name)}-ca")
        return
    for setting in ("certificate_secret", "certificate_names"):
        if setting in values:
            shown = values[setting]
            raise WrongSetting(
                sources[setting],
                shown if isinstance(shown, str) else ",".join(shown),  # type: ignore[arg-type]  # names
                f"cannot go with {sources['certificate_folder']}: certificates come from one place",
            )
