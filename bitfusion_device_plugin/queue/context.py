"""What the parts of one replica's queue share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bitfusion_cluster.api.client import KubernetesApi, Timeout
from bitfusion_device_plugin.queue.metrics import QueueMetrics
from bitfusion_device_plugin.queue.unit_accounts import UnitAccounts

TIMEOUT: Timeout = (3.0, 10.0)  # of one write, which passes through other people's webhooks


@dataclass(frozen=True, slots=True)
class QueueContext:
    """Made once by the process.

    Attributes:
        accounts: Who holds what, shown by `metrics`.
        replica: Reports Events.
        stuck_after_s: For how long no node is found for a pod before it is sent back, if others wait.
        leading: Asked before every write.
        units_from_zero: The pool's size while there is no node that could offer units; 0: it is away then.
        clock: Monotonic seconds.
        now: Seconds since the epoch.
    """

    api: KubernetesApi
    metrics: QueueMetrics
    accounts: UnitAccounts
    replica: str
    stuck_after_s: float
    leading: Callable[[], bool]
    units_from_zero: int = 0
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
