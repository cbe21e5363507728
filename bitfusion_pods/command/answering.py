"""Whether a pod's agent listens already: the API is told so up to a second later.

A kubelet looks once a second at its containers (pkg/kubelet/kubelet.go, `genericPlegRelistPeriod`). When it
has seen that the init container is over it tells that to the API, and starts the program's container.
"""

from __future__ import annotations

import socket
import time

from bitfusion_client.fast_imports import TYPE_CHECKING
from bitfusion_client.kubernetes.raw_objects import mapping, mappings, text
from bitfusion_client.pod import pod_contract

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

ASK_FOR, PAUSE = 1.5, 0.03
"""Seconds for which an agent is asked, at most once in the life of its pod, and between two questions."""


class Answering:
    """Of one pod. `port` is its agent's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._was_asked = False

    def agent_listens(self, pod: Mapping[str, Any]) -> bool:
        """Ask it, if its container is about to start; whoever is let in is found out when it is dialled."""
        address = starting_address(pod)
        if not address or self._was_asked:
            return False
        self._was_asked = True
        end = time.monotonic() + ASK_FOR
        while time.monotonic() < end:
            try:
                socket.create_connection((address, self._port), timeout=end - time.monotonic()).close()
            except OSError:
                time.sleep(PAUSE)
            else:
                return True
        return False


def starting_address(pod: Mapping[str, Any]) -> str:
    """The address of a pod whose init container has left its certificate; empty before."""
    status = mapping(pod.get("status"))
    for each in mappings(status.get("initContainerStatuses")):
        ended = mapping(mapping(each.get("state")).get("terminated"))
        if each.get("name") == pod_contract.INIT_CONTAINER and ended.get("exitCode") == 0:
            return text(status.get("podIP"))
    return ""
