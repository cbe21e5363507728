"""Tells at a ResourceQuota that it limits nothing by some of its keys, since nobody else does.

A thread of its own, a few Events a second, by turns of namespaces: a thousand of them delay no other work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from bitfusion_client.kubernetes.names import QUOTA_UNITS
from bitfusion_client.kubernetes.quota_keys import KUBEFLOWS_QUOTA, wrong_quota_text
from bitfusion_cluster.api.client import KubernetesApi
from bitfusion_cluster.api.errors import ApiFailure, Conflict
from bitfusion_cluster.api.events import WARNING, Said, about, event_object
from bitfusion_cluster.api.paths import events_path
from bitfusion_cluster.watching.cache import Cache, Key, Record
from bitfusion_cluster.watching.rate_limiter import RateLimiter
from bitfusion_cluster.watching.work_queue import WorkQueue

EVENTS_PER_SECOND = 2.0
AGAIN_S = 1800.0  # the API server forgets Events after an hour
MOST_OF_ONE = 10  # quotas of one namespace that are told
RETRY_S = 60.0

log = logging.getLogger(__name__)


class KeyedQuota(Record, Protocol):
    """What it knows of a quota; `wrong_keys` are those of `wrong_quota_keys`."""

    @property
    def namespace(self) -> str: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def uid(self) -> str: ...  # noqa: D102

    @property
    def wrong_keys(self) -> tuple[str, ...]: ...  # noqa: D102


Q = TypeVar("Q", bound=KeyedQuota)


class QuotaTeller(Generic[Q]):
    """Of one term of leadership.

    Args:
        api: Where Events are created.
        reporter: The program and its replica, as Events name them.
        quotas: As the watch has them.
        leading: Whether the term may write now.
        counts: The keys that count, by which `wrong_keys` were found.
    """

    def __init__(
        self,
        api: KubernetesApi,
        reporter: tuple[str, str],
        quotas: Cache[Q],
        leading: Callable[[], bool],
        counts: Sequence[str] = (QUOTA_UNITS,),
    ) -> None:
        self._api = api
        self._reporter = reporter
        self._quotas = quotas
        self._leading = leading
        self._counts = counts
        self._queue = WorkQueue()
        self._limiter = RateLimiter(EVENTS_PER_SECOND, EVENTS_PER_SECOND)
        self._stopping = threading.Event()

    def changed(self, old: Q | None, new: Q | None) -> None:
        """As a cache reports it: new wrong keys are told. Called by the watch's thread; never waits."""
        if new is not None and new.wrong_keys and (old is None or old.wrong_keys != new.wrong_keys):
            self._queue.add(new.key)

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
            self._api.create(events_path(quota.namespace), self._event(quota))
        except Conflict:
            pass  # said before
        except ApiFailure as error:
            self._limiter.heed(error)
            fields = {"namespace": quota.namespace, "quota": quota.name, "error": str(error)}
            log.warning("event not written", extra=fields)
            self._queue.add(key, RETRY_S)
        self._queue.add(key, AGAIN_S)

    def _event(self, quota: Q) -> dict[str, Any]:
        """In the quota's namespace."""
        of_profile = (
            " Write it in the Profile's spec.resourceQuotaSpec.hard, from which Kubeflow creates this quota."
        )
        where = of_profile if quota.name == KUBEFLOWS_QUOTA else ""
        message = f"This quota {wrong_quota_text(quota.wrong_keys, self._counts)}.{where}"
        whom = about("v1", "ResourceQuota", quota.namespace, quota.name, quota.uid)
        return event_object(whom, Said(WARNING, "BitfusionQuotaKey", message), *self._reporter)

    def _to_be_told(self, namespace: str) -> list[Key]:
        """The first of its quotas that limit nothing by some of their keys."""
        found = [self._quotas.get(*key) for key in self._quotas.known_keys() if key[0] == namespace]
        return sorted(quota.key for quota in found if quota is not None and quota.wrong_keys)[:MOST_OF_ONE]
