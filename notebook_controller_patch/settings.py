"""The command `bitfusion-notebook-controller` and its settings, one table for options, variables, help."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bitfusion_client.kubernetes.client_images import ANY, CLIENT_LISTS
from bitfusion_client.settings_table import Setting, one_of, parse_text
from bitfusion_cluster.program.program import Program
from bitfusion_cluster.webhooks.serving_settings import ServingSettings, certificate_chooser, serving_table

DEFAULT_NAME = "bitfusion-notebook-controller"
DEFAULT_WEBHOOKS = "bitfusion-notebook-admission"
MOST_QUOTA_KEYS = 8
# An extended resource counts by `requests.` alone; devices of DRA by their class.
_is_quota_key = re.compile(
    r"(requests\.[a-z0-9][-a-z0-9.]{0,252}|[a-z0-9][-a-z0-9.]{0,225}\.deviceclass\.resource\.k8s\.io)"
    r"/[A-Za-z0-9][-A-Za-z0-9_.]{0,62}"
).fullmatch


@dataclass(frozen=True, kw_only=True)
class Settings(ServingSettings):
    """What one controller process runs with; made by `read_settings`, read by `controller.py`."""

    name: str = DEFAULT_NAME
    webhook_configuration: str = DEFAULT_WEBHOOKS
    images: str | None = None
    clients: str = ANY
    quota_keys: tuple[str, ...] = ()

    @property
    def username(self) -> str:
        """As whom the apiserver knows the controller: its ServiceAccount has its name."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"


def _quota_keys(text: str) -> tuple[str, ...]:
    keys = tuple(filter(None, (key.strip() for key in text.split(","))))
    if len(keys) > MOST_QUOTA_KEYS or not all(map(_is_quota_key, keys)):
        raise ValueError(
            f"must be up to {MOST_QUOTA_KEYS} keys such as requests.nvidia.com/gpu, separated by commas"
        )
    return keys


TABLE = serving_table(
    "BITFUSION_CONTROLLER_",
    "controller",
    DEFAULT_NAME,
    DEFAULT_WEBHOOKS,
    Setting(
        "images",
        "FILE",
        "YAML list of {image, os, version}: which Bitfusion client fits which notebook image. Read again "
        "when it changes. Default: the rules for Kubeflow's own images",
        parse_text,
    ),
    Setting(
        "clients",
        "LIST",
        "which clients the rules may name: any, or vmware, those that VMware's injector has; it refuses "
        "pods with another one, such as ubuntu22 454. Default: any",
        one_of(*CLIENT_LISTS),
    ),
    Setting(
        "quota_keys",
        "KEYS",
        "where notebooks compute in GPU pods, and there is no pool: the keys by which ResourceQuotas count "
        "these pods' GPUs, such as requests.nvidia.com/gpu, separated by commas. An Event tells a quota that "
        "does not limit GPUs by another key. Default: none, nothing is told",
        _quota_keys,
    ),
    credentials=(
        ", those of the ServiceAccount: admission holds back what anybody else writes in a running template"
    ),
)


PROGRAM = Program(
    "bitfusion-notebook-controller",
    """\
Carries GPU requests of Kubeflow notebooks to their pods: Notebook and StatefulSet admission, and the
reconciler that heals what admission missed. Every replica answers admission; one of them, elected by a
Lease, reconciles. It never restarts a running notebook.""",
    "monitoring_port",
    """\
SIGTERM and SIGINT end it within 20 seconds: not ready, requests answered, lease released.
Ready (/readyz) means: a certificate is there, the apiserver trusts it, and the notebooks have been read.""",
    TABLE,
    Settings,
    "notebook_controller_patch.controller",
    "the controller's Service",
    certificate_chooser(DEFAULT_NAME),
)
main, read_settings, settings_of = PROGRAM.main, PROGRAM.read, PROGRAM.settings_of
