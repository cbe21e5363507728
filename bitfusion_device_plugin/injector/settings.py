"""The settings of `bitfusion-injector`: one table for options, environment and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.pod.pod_contract import CLIENT_IMAGE
from bitfusion_client.request.quantities import format_mib, parse_gpu_memory, parse_memory
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
from bitfusion_device_plugin.injector.injection.injection_settings import STAND_IN_MIB, VMWARE_MIB

DEFAULT_NAME = "bitfusion-injector"
DEFAULT_WEBHOOKS = "bitfusion-pod-injection"
LONGEST_IMAGE = 512  # characters of a reference
ON, OFF = "on", "off"


@dataclass(frozen=True)
class Settings(ServingSettings):
    """What one injector process runs with; made by `read_settings`, read by `process.py`."""

    name: str = DEFAULT_NAME
    webhook_configuration: str = DEFAULT_WEBHOOKS
    clients: str | None = None
    images: str | None = None
    client_image: str = CLIENT_IMAGE
    gpu_memory: int | None = None  # MiB
    volume_limit: int | None = None  # MiB
    gates: bool = False


def _image(text: str) -> str:
    if not (text.isascii() and text.isprintable() and " " not in text and len(text) <= LONGEST_IMAGE):
        raise ValueError(f"must be an image without blanks, at most {LONGEST_IMAGE} characters")
    return text


def _volume_limit(text: str) -> int:
    try:
        return parse_memory(text)
    except InvalidRequest as error:
        raise ValueError(error.allowed) from None


def _on_or_off(text: str) -> bool:
    return one_of(ON, OFF)(text) == ON


def _gpu_memory(text: str) -> int:
    try:
        return parse_gpu_memory(text)
    except InvalidRequest as error:
        raise ValueError(error.allowed) from None


TABLE = SettingsTable(
    "BITFUSION_INJECTOR_",
    GROUPS,
    (
        *cluster_rows("injector", DEFAULT_NAME, DEFAULT_WEBHOOKS),
        *LISTENING_ROWS,
        Setting(
            SERVING,
            "clients",
            "FILE",
            "YAML list of {os, version, kind, image, package}: which client a pod gets. Read again when it "
            f"changes. Default: the stand-in of {CLIENT_IMAGE} for every pod",
            parse_text,
        ),
        Setting(
            SERVING,
            "images",
            "FILE",
            "the controller's YAML list of {image, os, version}, for pods whose annotations name no client. "
            "Read again when it changes. Default: the rules for Kubeflow's own images",
            parse_text,
        ),
        Setting(
            SERVING,
            "client_image",
            "IMAGE",
            f"the image with the starter of VMware's client. Default: {CLIENT_IMAGE}",
            _image,
        ),
        Setting(
            SERVING,
            "gpu_memory",
            "AMOUNT",
            "memory of one GPU of the pool, such as 16Gi: what a size by memory is a part of. Without it "
            "pods that ask by memory are refused",
            _gpu_memory,
        ),
        Setting(
            SERVING,
            "volume_limit",
            "AMOUNT",
            "size limit of the volume with the client, such as 1Gi, for each container that asks. Default: "
            f"{format_mib(STAND_IN_MIB)}; with VMware's packages {format_mib(VMWARE_MIB)}",
            _volume_limit,
        ),
        Setting(
            SERVING,
            "gates",
            "WORD",
            "on: pods that ask wait at a scheduling gate until bitfusion-queue has free units of the pool "
            "for them. It has to run, or they wait for ever. Before Kubernetes 1.27 there are no gates, and "
            "none is written. Default: off",
            _on_or_off,
        ),
        *certificate_rows("injector"),
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
        values["namespace"] = own_namespace(namespace_file, "the injector's")
    choose_certificate(values, given.sources, DEFAULT_NAME)
    return Settings(**values)  # type: ignore[arg-type]  # each parser of TABLE returns its field's type
