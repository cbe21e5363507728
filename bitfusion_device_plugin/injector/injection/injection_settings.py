"""What an administrator decides about the injection of pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bitfusion_client.gpu_pods.settings import DEFAULT_SETTINGS as DEFAULT_POD_SETTINGS
from bitfusion_client.gpu_pods.settings import PodSettings
from bitfusion_client.kubernetes.client_images import DEFAULT_RULES, ImageRule
from bitfusion_client.pod.pod_contract import CLIENT_IMAGE, VMWARE
from bitfusion_device_plugin.injector.injection.client_map import DEFAULT_CLIENTS, ClientRule
from bitfusion_device_plugin.injector.injection.gpu_nodes import NOWHERE, GpuNodes

# MiB of an emptyDir for each container that asks. VMware's image may have the packages of all systems.
STAND_IN_MIB = 256
VMWARE_MIB = 4096


@dataclass(frozen=True, slots=True)
class InjectorSettings:
    """Read once by the process, and again when a file has changed; immutable, so any thread may use it.

    Attributes:
        clients: Which client for which operating system and version; see `client_map`.
        images: Which operating system and version a container's image means, where no annotation says.
        client_image: The image with the starter, where a client's own image has only VMware's packages.
        gpu_memory_mib: Memory of one GPU of the pool, option ``--gpu-memory``; None where nobody has said.
            Without it a size by memory cannot be counted in units.
        volume_mib: Size limit of the client's volume for each container that asks; None: by the kind.
        gates: Whether pods wait at the scheduling gate which `bitfusion-queue` lifts once they may have their
            units.
        hides_node_gpus: Whether containers that ask are kept from the node's own NVIDIA cards, see
            `node_gpus`.
        pods: What GPU pods are like, for clients of the kind `PODS`.
        sizes: The form's list of sizes as JSON, see `form_sizes`; empty where the admin has given none.
        near_gpus: The nodes that pods with such a client prefer, see `gpu_nodes`.
    """

    clients: Sequence[ClientRule] = DEFAULT_CLIENTS
    images: Sequence[ImageRule] = DEFAULT_RULES
    client_image: str = CLIENT_IMAGE
    gpu_memory_mib: int | None = None
    volume_mib: int | None = None
    gates: bool = False
    hides_node_gpus: bool = False
    pods: PodSettings = DEFAULT_POD_SETTINGS
    near_gpus: GpuNodes = NOWHERE
    sizes: str = ""

    def volume_mib_for(self, kind: str) -> int:
        """The size limit for one container with this kind of client."""
        return self.volume_mib or (VMWARE_MIB if kind == VMWARE else STAND_IN_MIB)


DEFAULT_SETTINGS = InjectorSettings()
