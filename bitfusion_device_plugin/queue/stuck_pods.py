"""How long the scheduler has found no node for lifted pods: measured here, since no pod says it."""

from __future__ import annotations

from collections.abc import Iterable

from bitfusion_device_plugin.queue.pod_states import PodState, QueuedPod


class StuckPods:
    """Of one term of leadership; used by one thread.

    Args:
        allowed_s: From when on a pod is called stuck. A new leader begins to measure anew.
    """

    def __init__(self, allowed_s: float) -> None:
        self._allowed = allowed_s
        self._since: dict[str, float] = {}

    def look(self, pods: Iterable[QueuedPod], now: float) -> dict[str, float]:
        """The uids of stuck pods, and the seconds since when they have no node."""
        since = self._since
        self._since = {
            pod.uid: since.get(pod.uid, now) for pod in pods if pod.state is PodState.LIFTED and pod.refusal
        }
        return {uid: now - first for uid, first in self._since.items() if now - first >= self._allowed}

    def any(self) -> bool:
        """Whether any pod is on its way to be called stuck, or is."""
        return bool(self._since)
