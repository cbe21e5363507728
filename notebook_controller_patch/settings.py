"""The settings of `bitfusion-notebook-controller`: one table for options, environment and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bitfusion_client.kubernetes.client_images import ANY, CLIENT_LISTS
from bitfusion_cluster.program.settings_table import (
    NAMESPACE_FILE,
    Setting,
    SettingsTable,
    one_of,
    own_namespace,
    parse_text,
)
from bitfusion_cluster.webhooks.serving_settings import (
    GROUPS,
    LISTENING_ROWS,
    PROCESS_ROWS,
    SERVING,
    ServingSettings,
    certificate_rows,
    choose_certificate,
    cluster_rows,
)

DEFAULT_NAME = "bitfusion-notebook-controller"
DEFAULT_WEBHOOKS = "bitfusion-notebook-admission"


@dataclass(frozen=True)
class Settings(ServingSettings):
    """What one controller process runs with; made by `read_settings`, read by `controller.py`."""

    name: str = DEFAULT_NAME
    webhook_configuration: str = DEFAULT_WEBHOOKS
    images: str | None = None
    clients: str = ANY

    @property
    def username(self) -> str:
        """As whom the apiserver knows the controller: its ServiceAccount has its name."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


TABLE = SettingsTable(
    "BITFUSION_CONTROLLER_",
    GROUPS,
    (
        *cluster_rows(
            "controller",
            DEFAULT_NAME,
            DEFAULT_WEBHOOKS,
            ", those of the ServiceAccount: admission holds back what anybody else writes in a running "
            "template",
        ),
        *LISTENING_ROWS,
        Setting(
            SERVING,
            "images",
            "FILE",
            "YAML list of {image, os, version}: which Bitfusion client fits which notebook image. Read again "
            "when it changes. Default: the rules for Kubeflow's own images",
            parse_text,
        ),
        Setting(
            SERVING,
            "clients",
            "LIST",
            "which clients the rules may name: any, or vmware, those that VMware's injector has; it refuses "
            "pods with another one, such as ubuntu22 454. Default: any",
            one_of(*CLIENT_LISTS),
        ),
        *certificate_rows("controller"),
        *PROCESS_ROWS,
    ),
)


def read_settings(
    options: Mapping[str, str | None],
    environ: Mapping[str, str],
    namespace_file: Path = NAMESPACE_FILE,
) -> Settings:
    """Settings from options (by the names of `TABLE`, None: not given) and the environment.

    Raises WrongSetting, whose text is one line: the setting, its value, where it came from, what is allowed.
    """
    given = TABLE.read(options, environ)
    values = {**given.values, "ignored": given.ignored}
    if "namespace" not in values:
        values["namespace"] = own_namespace(namespace_file, "the controller's")
    choose_certificate(values, given.sources, DEFAULT_NAME)
    return Settings(**values)  # type: ignore[arg-type]  # each parser of TABLE returns its field's type
