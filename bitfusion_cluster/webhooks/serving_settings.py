"""The settings that every process has which serves webhooks: where it listens, its certificate, its log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bitfusion_client.errors import WrongSetting
from bitfusion_client.settings_table import (
    LOG_ROWS,
    GivenSettings,
    Setting,
    SettingsTable,
    number,
    parse_text,
)
from bitfusion_cluster.program.common_settings import (
    BIND_ROW,
    ClusterSettings,
    kubeconfig_row,
    monitoring_port_row,
    name_row,
    namespace_row,
    parse_names,
    parse_object_name,
    parse_port,
)


@dataclass(frozen=True, kw_only=True)
class ServingSettings(ClusterSettings):
    """What `serving_process.py` reads. Each process has a class of its own with its defaults and the rest.

    Attributes:
        name: Of the process's Service, ServiceAccount and Lease.
        webhook_configuration: The MutatingWebhookConfiguration that calls it.
    """

    port: int = 8443
    certificate_folder: str | None = None
    certificate_secret: str | None = None
    certificate_names: tuple[str, ...] = ()
    client_authority: str | None = None
    webhook_configuration: str = ""
    drain: float = 5.0
    self_check_every: float = 60.0


def serving_table(
    prefix: str, what: str, name: str, webhooks: str, *own: Setting, credentials: str = ""
) -> SettingsTable:
    """The table of a process in the words of `what` ("controller"), with its defaults and its `own` rows.

    `credentials` follows the words "credentials for the cluster".
    """
    return SettingsTable(
        prefix,
        {
            "the cluster": (
                kubeconfig_row(credentials),
                namespace_row(f"{what}'s own Service, Lease and Secret are"),
                name_row(f"the {what}'s Service, ServiceAccount and Lease", name),
                Setting(
                    "webhook_configuration",
                    "NAME",
                    f"the MutatingWebhookConfiguration that calls this {what}. Default: {webhooks}",
                    parse_object_name,
                ),
            ),
            "serving": (
                BIND_ROW,
                Setting("port", "PORT", "HTTPS port the apiserver calls. Default: 8443", parse_port),
                monitoring_port_row(),
                *own,
                Setting(
                    "drain",
                    "SECONDS",
                    "seconds for which requests are still accepted after SIGTERM, until every apiserver "
                    "knows "
                    "that this replica is leaving. Default: 5",
                    number(0, 10),
                ),
                Setting(
                    "self_check_every",
                    "SECONDS",
                    "seconds between two dry runs that check whether the apiserver reaches the webhooks; "
                    "0: none. Default: 60",
                    number(0, 3600),
                ),
            ),
            "certificates": _certificate_rows(what),
            "logs": LOG_ROWS,
        },
    )


def _certificate_rows(what: str) -> tuple[Setting, ...]:
    return (
        Setting(
            "certificate_folder",
            "FOLDER",
            "serve the certificate in FOLDER/tls.crt and tls.key (a mounted Secret of cert-manager's). Read "
            "again when it changes. this program then does not write caBundle",
            parse_text,
        ),
        Setting(
            "certificate_secret",
            "NAME",
            "without cert-manager: keep an own certificate authority in this Secret and write it into the "
            f"caBundle of --webhook-configuration. This is the default, with a Secret named as the {what} "
            "and -ca",
            parse_object_name,
        ),
        Setting(
            "certificate_names",
            "NAMES",
            "further DNS names and addresses for the built-in certificate, separated by commas: needed only "
            "if the apiserver calls a URL instead of the Service",
            parse_names,
        ),
        Setting(
            "client_authority",
            "FILE",
            "PEM file of a certificate authority: reviews are accepted only from clients with a certificate "
            "that it signed. Read again when it changes. The apiserver presents one only if configured to. "
            "Default: no certificate is required",
            parse_text,
        ),
    )


def certificate_chooser(name: str) -> Callable[[GivenSettings], None]:
    """For `Program.finish`: fills in the authority's Secret, named after `name`, where no folder is given.

    Raises WrongSetting where certificates would come from two places.
    """

    def choose(given: GivenSettings) -> None:
        values, sources = given.values, given.sources
        if not values.get("certificate_folder"):
            values.setdefault("certificate_secret", f"{values.get('name', name)}-ca")
            return
        for setting in ("certificate_secret", "certificate_names"):
            if setting in values:
                shown = values[setting]
                raise WrongSetting(
                    sources[setting],
                    shown if isinstance(shown, str) else ",".join(shown),  # type: ignore[arg-type]  # names
                    f"cannot be combined with {sources['certificate_folder']}: certificates come from one "
                    "place",
                )

    return choose
