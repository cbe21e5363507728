"""Keeps a node's own NVIDIA cards from a container that has its GPUs of the pool, where an admin wants it.

An image made for CUDA says ``NVIDIA_VISIBLE_DEVICES=all``, and where NVIDIA's container runtime is the node's
default one it then has every card of the node, asked for or not. ``void`` is that runtime's word for none of
them (NVIDIA Container Toolkit, "Environment variables"). This is the one variable that the injector writes.
``none`` would bring the driver's libraries, before the client's. It is no fence: whoever writes a pod may
write ``all``. The runtime's `accept-nvidia-visible-devices-envvar-when-unprivileged = false` is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bitfusion_client.kubernetes.names import is_gpu_resource
from bitfusion_client.kubernetes.raw_objects import limits_of
from bitfusion_client.request.quantities import is_zero

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
HIDDEN = {"name": VARIABLE, "value": "void"}
WORDS_FOR_CARDS = ("nvidia", "gpu", "cuda")  # in the names of resources: nvidia.com/gpu, aliyun.com/gpu-mem


def may_be_hidden(container: Mapping[str, Any], variables: Sequence[Mapping[str, Any]]) -> bool:
    """Whether `HIDDEN` is to be added to the variables of a container that asks.

    Not where it sets the variable itself, nor where it asks for cards of the node, too: a device plugin tells
    it in this variable which it has, and the container's own would win. What ``envFrom`` brings nobody sees
    here; ours wins over it.
    """
    is_set = any(variable.get("name") == VARIABLE for variable in variables)
    return not is_set and not _asks_for_cards(container)


def _asks_for_cards(container: Mapping[str, Any]) -> bool:
    return any(
        any(word in name.lower() for word in WORDS_FOR_CARDS)
        and not is_gpu_resource(name)
        and not is_zero(value)
        for name, value in limits_of(container).items()
    )
