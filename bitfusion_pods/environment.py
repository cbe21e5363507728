"""Whose variables a program in a pod gets: the notebook's, and the pod's where only that can know. Pure."""

from __future__ import annotations

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.pod.pod_contract import CLIENT_FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

OF_THE_POD = ("CUDA_", "NVIDIA_", "KUBERNETES_", "GPU_DEVICE_", "HIP_", "ROCR_")
"""Beginnings of names: what the node, its GPUs' driver and Kubernetes say in the pod is so."""

ALSO_OF_THE_POD = ("HOSTNAME",)

OF_ITS_PLACE, DEVICES = ("KUBERNETES_", "GPU_DEVICE_", *ALSO_OF_THE_POD), "_VISIBLE_DEVICES"
"""Beginnings and the end of names that say nothing elsewhere: each pod numbers its devices anew. Others are
the user's settings, ``CUDA_LAUNCH_BLOCKING``, unless the pod has its own."""

DRIVERS_LIBRARIES = "LD_LIBRARY_PATH"
"""The pod's folders, which hold the driver's libraries, come before the notebook's."""

CLIENTS_FOLDER = f"{CLIENT_FOLDER}/bin"

GPU_POD_VARIABLE = "BITFUSION_GPU_POD"
"""Says to a program that it runs in a GPU pod, and in which."""

DEVICES_VARIABLE = "BITFUSION_POOL_DEVICES"
"""Describes a program's GPUs to it as JSON, as every client here does."""

NOT_SENT = (
    *("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "JUPYTER_TOKEN", "JUPYTERHUB_CLIENT_ID"),
    *("JUPYTERHUB_OAUTH_SCOPES", "CONFIGPROXY_AUTH_TOKEN"),
)
"""Tokens of the notebook's server: a program needs none of them, and the pod is another place."""


def sent(notebook: Mapping[str, str]) -> dict[str, str]:
    """What of the notebook's environment goes to the pod."""
    stays = (
        *NOT_SENT,
        *(name for name in notebook if name.startswith(OF_ITS_PLACE) or name.endswith(DEVICES)),
    )
    return {name: text for name, text in notebook.items() if name not in stays}


def of_program(from_notebook: Mapping[str, str], pod: Mapping[str, str]) -> dict[str, str]:
    """The program's environment.

    Args:
        from_notebook: What has come, whatever has sent it.
        pod: That of process 1 of the pod.
    """
    merged = sent(from_notebook) | {name: text for name, text in pod.items() if _is_pods(name)}
    folders = [pod.get(DRIVERS_LIBRARIES, ""), from_notebook.get(DRIVERS_LIBRARIES, "")]
    words = [word for text in folders for word in text.split(":") if word]
    # where a cell's `!bitfusion` is; the notebook's folders, which come first, may not have it here
    merged["PATH"] = ":".join(filter(None, [merged.get("PATH", ""), CLIENTS_FOLDER]))
    merged[GPU_POD_VARIABLE] = pod.get("HOSTNAME", "this pod")
    if words:
        merged[DRIVERS_LIBRARIES] = ":".join(dict.fromkeys(words))
    return merged


def _is_pods(name: str) -> bool:
    return name.startswith(OF_THE_POD) or name in ALSO_OF_THE_POD
