"""Pods at our gate that ask for no units: their gates are removed beside the queue, at a pace of their own.

They wait for nothing and hold nothing. But no quota counts them, so that anybody who may make pods may make
thousands of them: those take no turn of the leader's, and none of another namespace's of their own kind.
"""

from __future__ import annotations

import logging
import threading

from bitfusion_cluster.api.errors import ApiFailure, Conflict, NotFound
from bitfusion_cluster.api.paths import pod_path
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_cluster.watching.rate_limiter import RateLimiter
from bitfusion_cluster.watching.work_queue import WorkQueue
from bitfusion_device_plugin.queue import metrics as m
from bitfusion_device_plugin.queue.context import TIMEOUT, QueueContext
from bitfusion_device_plugin.queue.pod_patches import lift_patch
from bitfusion_device_plugin.queue.pod_states import QueuedPod

LIFTS_PER_SECOND, AT_ONCE = 2.0, 10.0  # an API server that is busy answers some tens of the leader's
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0

log = logging.getLogger(__name__)


class IdlePods:
    """Of one term of leadership. `seen` is called by the watch's thread and never waits.

    Args:
        context: Of the term.
        pods: As the watch has them.
    """

    def __init__(self, context: QueueContext, pods: Cache[QueuedPod]) -> None:
        self._context = context
        self._pods = pods
        self._queue = WorkQueue(FIRST_RETRY_S, LONGEST_RETRY_S, context.clock)
        self._limiter = RateLimiter(LIFTS_PER_SECOND, AT_ONCE, context.clock)
        self._stopping = threading.Event()

    def seen(self, pod: QueuedPod) -> None:
        """It asks for nothing, and is new or has changed."""
        self._queue.add(pod.key)

    def stop(self) -> None:
        """Begin nothing more; does not wait."""
        self._stopping.set()
        self._queue.close()

    def work(self) -> None:
        """Until `stop`. The target of a thread."""
        self._queue.work_off(self.let_go)

    def let_go(self, key: Key) -> None:
        """Remove one pod's gate, if it is there and asks for nothing. Never raises; what fails is retried."""
        if self._idle_pod(key) is None:
            self._queue.forget(key)
            return
        if not self._limiter.wait(self._stopping):
            return
        context, pod = self._context, self._idle_pod(key)
        self._queue.retry(key)  # if it fails, or the watch brings nothing new
        if pod is None or not context.leading():
            return
        result = m.ERROR
        try:
            context.api.patch(pod_path(*key), lift_patch(pod), timeout=TIMEOUT)
            self._queue.forget(key)
            result = m.DONE
        except (Conflict, NotFound):
            result = m.CONFLICT  # the watch brings it as it is now
        except ApiFailure as error:
            self._limiter.heed(error)
            fields = {"namespace": pod.namespace, "pod": pod.name, "error": str(error)}
            log.warning("a pod without units is released later", extra=fields)
        except Exception:  # one pod's bug must not hold the others
            log.exception("a pod without units was not released")
        context.metrics.writes.labels(m.LIFT, result).inc()

    def _idle_pod(self, key: Key) -> QueuedPod | None:
        """As the watch has it now; None if it is gone, asks for units, or is past our gate."""
        pod = self._pods.get(*key)
        return None if pod is None or pod.units or pod.gate_index < 0 else pod
