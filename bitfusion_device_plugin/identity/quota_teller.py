"""Tells at a ResourceQuota that it limits nothing by some of its keys, since nobody else does.

A thread of its own, a few Events a second, by turns of namespaces: a thousand wrong quotas hold up no token.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bitfusion_cluster.api.errors import ApiFailure, Conflict
from bitfusion_cluster.api.paths import events_path
from bitfusion_cluster.watching.cache import Cache, Key
from bitfusion_cluster.watching.rate_limiter import RateLimiter
from bitfusion_cluster.watching.work_queue import WorkQueue
from bitfusion_device_plugin.identity.events import quota_event
from bitfusion_device_plugin.identity.keeper import KeeperContext
from bitfusion_device_plugin.identity.quotas import QuotaRecord

EVENTS_PER_SECOND = 2.0
AGAIN_S = 1800.0  # the API server forgets Events after an hour
MOST_OF_ONE = 10  # quotas of one namespace that are told
RETRY_S = 60.0

log = logging.getLogger(__name__)


class QuotaTeller:
    """Of one term of leadership.

    Args:
        context: Of the replica.
        quotas: As the watch has them.
        leading: Whether the term may write now.
    """

    def __init__(
        self, context: KeeperContext, quotas: Cache[QuotaRecord], leading: Callable[[], bool]
    ) -> None:
        self._context = context
        self._quotas = quotas
        self._leading = leading
        self._queue = WorkQueue()
        self._limiter = RateLimiter(EVENTS_PER_SECOND, EVENTS_PER_SECOND)
        self._stopping = threading.Event()

    def seen(self, quota: QuotaRecord) -> None:
        """It limits nothing by some of its keys. Called by the watch's thread; never waits."""
        self._queue.add(quota.key)

    def stop(self) -> None:
        """Begin nothing more; does not wait."""
        self._stopping.set()
        self._queue.close()

    def work(self) -> None:
        """Until `stop`. The target of a thread."""
        self._queue.work_off(self.tell)

    def tell(self, key: Key) -> None:
        """Send the Event of one quota, and again before it is forgotten, or if that failed. Never raises."""
        if not self._limiter.wait(self._stopping):
            return
        quota = self._quotas.get(*key)
        if quota is None or key not in self._to_be_told(quota.namespace) or not self._leading():
            return
        try:
            self._context.api.create(events_path(quota.namespace), quota_event(quota, self._context.replica))
        except Conflict:
            pass  # said before
        except ApiFailure as error:
            self._limiter.heed(error)
            fields = {"namespace": quota.namespace, "quota": quota.name, "error": str(error)}
            log.warning("event not sent", extra=fields)
            self._queue.add(key, RETRY_S)
        self._queue.add(key, AGAIN_S)

    def _to_be_told(self, namespace: str) -> list[Key]:
        """The first of its quotas that limit nothing by some of their keys."""
        found = [self._quotas.get(*key) for key in self._quotas.known_keys() if key[0] == namespace]
        return sorted(quota.key for quota in found if quota is not None and quota.wrong_keys)[:MOST_OF_ONE]
