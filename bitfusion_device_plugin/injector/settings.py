"""The command `bitfusion-injector` and its settings: one table for options, environment and help."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bitfusion_client.errors import InvalidRequest
from bitfusion_client.pod.pod_contract import CLIENT_IMAGE
from bitfusion_client.request.quantities import format_mib, parse_gpu_memory, parse_memory
from bitfusion_client.settings_table import Setting, one_of, parse_text
from bitfusion_cluster.program.program import Program
from bitfusion_cluster.webhooks.serving_settings import ServingSettings, certificate_chooser, serving_table
from bitfusion_device_plugin.injector.injection.injection_settings import STAND_IN_MIB, VMWARE_MIB

DEFAULT_NAME = "bitfusion-injector"
DEFAULT_WEBHOOKS = "bitfusion-pod-injection"
# As the API has them: a prefix is a DNS name.
_is_label = re.compile(
    r"(?=.{1,317}\Z)([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
).fullmatch
_is_value = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?").fullmatch
LONGEST_IMAGE = 512  # characters of a reference
ON, OFF = "on", "off"
HIDDEN, VISIBLE = "hidden", "visible"


@dataclass(frozen=True, kw_only=True)
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
    node_gpus: bool = False  # hidden
    pods: str | None = None
    sizes: str | None = None
    gpu_nodes: tuple[str, str] = ("", "")  # a label and its value
    gpu_taint: str = ""


def _image(text: str) -> str:
    if not (text.isascii() and text.isprintable() and " " not in text and len(text) <= LONGEST_IMAGE):
        raise ValueError(f"must be an image reference without spaces, at most {LONGEST_IMAGE} characters")
    return text


def _on_or_off(text: str) -> bool:
    return one_of(ON, OFF)(text) == ON


def _hidden_or_visible(text: str) -> bool:
    return one_of(HIDDEN, VISIBLE)(text) == HIDDEN


def _label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not _is_label(name) or not (value == "" or _is_value(value)):
        raise ValueError("must be a label, or label=value, as nodes have it")
    return name, value


def _taint(text: str) -> str:
    if not _is_label(text):
        raise ValueError("must be the key of a taint, as nodes have it")
    return text


def _mib(parse: Callable[[object], int]) -> Callable[[str], int]:
    def parsed(text: str) -> int:
        try:
            return parse(text)
        except InvalidRequest as error:
            raise ValueError(error.allowed) from None

    return parsed


TABLE = serving_table(
    "BITFUSION_INJECTOR_",
    "injector",
    DEFAULT_NAME,
    DEFAULT_WEBHOOKS,
    Setting(
        "clients",
        "FILE",
        "YAML list of {os, version, kind, image, package}: which client a pod gets. Read again when it "
        f"changes. Default: the stand-in of {CLIENT_IMAGE} for every pod",
        parse_text,
    ),
    Setting(
        "images",
        "FILE",
        "the controller's YAML list of {image, os, version}, for pods whose annotations name no client. "
        "Read again when it changes. Default: the rules for Kubeflow's own images",
        parse_text,
    ),
    Setting(
        "client_image",
        "IMAGE",
        "the image with the client, where --clients names none, and with the starter of VMware's client. "
        f"Default: {CLIENT_IMAGE}",
        _image,
    ),
    Setting(
        "gpu_memory",
        "AMOUNT",
        "memory of one GPU of the pool, such as 16Gi, of which a size by memory is a part. Without it, "
        "pods that request memory are refused",
        _mib(parse_gpu_memory),
    ),
    Setting(
        "volume_limit",
        "AMOUNT",
        "size limit of the volume with the client, such as 1Gi, for each container that asks for GPUs. "
        "Default: "
        f"{format_mib(STAND_IN_MIB)}; with VMware's packages {format_mib(VMWARE_MIB)}",
        _mib(parse_memory),
    ),
    Setting(
        "gates",
        "WORD",
        "on: pods that ask for GPUs wait at a scheduling gate until bitfusion-queue has free units of the "
        "pool for them. If it is not running, they wait forever. Kubernetes before 1.27 has no gates, so "
        "none is written. Default: off",
        _on_or_off,
    ),
    Setting(
        "node_gpus",
        "WORD",
        "hidden: containers that ask get NVIDIA_VISIBLE_DEVICES=void where they set no other value, so that "
        "an image made for CUDA does not have the node's own cards where NVIDIA's runtime is the default "
        "one. Default: visible",
        _hidden_or_visible,
    ),
    Setting(
        "pods",
        "FILE",
        "YAML settings of the pods that clients of the kind pods make: their sizes, resources, queues. Read "
        "again when it changes. Default: whole GPUs of nvidia.com/gpu",
        parse_text,
    ),
    Setting(
        "sizes",
        "FILE",
        "the sizes.yaml of the notebook form: JupyterLab in notebooks offers these sizes. Read again when it "
        "changes. Default: it makes sizes from the pool",
        parse_text,
    ),
    Setting(
        "gpu_nodes",
        "LABEL",
        "label, or label=value, of nodes with GPUs, such as nvidia.com/gpu.present=true: pods with a client "
        "of the kind pods prefer them, so that a volume which one node at a time can mount is on the right "
        "one. Default: none is preferred",
        _label,
    ),
    Setting(
        "gpu_taint",
        "KEY",
        "taint of nodes with GPUs, such as nvidia.com/gpu, that the same pods tolerate. Default: none",
        _taint,
    ),
)


PROGRAM = Program(
    "bitfusion-injector",
    """\
Puts the Bitfusion client into pods that ask for its GPUs, and translates what they ask for into the resource
that nodes offer: admission of pods. Every replica answers; one of them, elected by a Lease, tells the
apiserver whom to trust.""",
    "monitoring_port",
    """\
SIGTERM and SIGINT end it within 20 seconds: not ready, requests answered, lease released.
Ready (/readyz) means: a certificate is there, and the apiserver trusts it.""",
    TABLE,
    Settings,
    "bitfusion_device_plugin.injector.process",
    "the injector's Service",
    certificate_chooser(DEFAULT_NAME),
)
main, read_settings, settings_of = PROGRAM.main, PROGRAM.read, PROGRAM.settings_of
