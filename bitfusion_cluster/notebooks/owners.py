"""Looks up a Notebook by what belongs to it: as it is now, by one live request, or in the watch cache.

A write that starts a pod needs the Notebook as it is now: the watch may be behind by milliseconds, or, with
its rights taken away, by any time. Where the API server cannot say within half a second, the cache decides,
but then nothing is removed, it is counted, and the reconciler looks at the notebook afterwards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from bitfusion_client.kubernetes.notebook_request import is_left_alone
from bitfusion_cluster.monitoring.metrics import (
    CACHED,
    FAILED,
    GONE,
    LIVE,
    LOOKUP_FORBIDDEN,
    LOOKUP_NO_ANSWER,
    LOOKUP_REFUSED,
    LOOKUP_TIMEOUT,
    AdmissionMetrics,
)

LONGEST_LOOKUP = 0.5  # seconds, for the apiserver's answer
LONGEST_QUEUE = 2.0  # seconds, for other look-ups before it; the apiserver waits 5 s for the whole review
AT_ONCE = 8  # live look-ups: as many connections are kept, and threads

log = logging.getLogger(__name__)


class Record(Protocol):
    """What is known of a Notebook."""

    @property
    def uid(self) -> str:
        """Tells it from another Notebook that had the same name."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """At least those that are carried."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """At least this project's."""
        ...


class NotebookCache(Protocol):
    """The Notebooks as the watch has seen them; asked from the server's thread."""

    def get(self, namespace: str, name: str) -> Record | None:
        """The Notebook, None if it is not known."""
        ...


Fetch = Callable[[str, str, float], "Record | None"]


@dataclass(frozen=True, slots=True)
class Owner:
    """What is known of the Notebook that owns a StatefulSet, or to which a pod belongs.

    Attributes:
        annotations: None if they could not be learnt, or there is no such Notebook (any more).
        left_alone: It wants nothing of this project, by its label.
        certain: False if the annotations may have changed since: nothing may be removed for them.
    """

    annotations: Mapping[str, str] | None
    left_alone: bool = False
    certain: bool = True


UNKNOWN = Owner(None)


class _NoTurn(Exception):
    """Others were being looked up all the time."""


class Owners:
    """Looks Notebooks up for admission.

    Args:
        cache: Asked without waiting; None in a process that keeps none.
        fetch: Gets a Notebook from the apiserver: ``fetch(namespace, name, seconds)``, None if there is none
            of that name. Called in threads; whatever it raises counts as "could not be learnt". A `status`
            of its error is HTTP's.
        metrics: Counts look-ups, and why some failed.
        unsure: Told namespace and name of a Notebook that could not be looked up; the reconciler heals it.
    """

    def __init__(
        self,
        cache: NotebookCache | None,
        fetch: Fetch,
        metrics: AdmissionMetrics,
        unsure: Callable[[str, str], None] = lambda namespace, name: None,
    ) -> None:
        self._cache = cache
        self._fetch = fetch
        self._metrics = metrics
        self._unsure = unsure
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="notebook-lookup")
        self._free = asyncio.Semaphore(AT_ONCE)

    def cached(self, namespace: str, name: str, uid: str) -> Owner | None:
        """What the watch has brought; None if this very Notebook is not known. Never waits.

        For writes after which no pod starts. The next one that starts a pod asks again.
        """
        owner = self._from_cache(namespace, name, uid)
        if owner is not None:
            self._count(CACHED)
        return owner

    async def current(self, namespace: str, name: str, uid: str = "") -> Owner:
        """The Notebook as it is now, or, where the apiserver doesn't say in time, what the watch has brought.

        Without `uid`: whichever has that name. Many starts at once wait for each other; that is not counted
        as the apiserver's time.
        """
        began = time.perf_counter()
        try:
            record = await self._live(namespace, name)
        except Exception as error:  # whatever it is: admission goes on without the answer
            return self._fallen_back(namespace, name, uid, error)
        finally:
            self._metrics.lookup_seconds.observe(time.perf_counter() - began)
        if record is None or (uid and record.uid != uid):
            # Deleted since, or made anew: the StatefulSet goes, too, and what the cache had says nothing.
            self._count(GONE)
            return UNKNOWN
        self._count(LIVE)
        return _owner(record)

    async def _live(self, namespace: str, name: str) -> Record | None:
        try:
            await asyncio.wait_for(self._free.acquire(), LONGEST_QUEUE)
        except asyncio.TimeoutError:
            raise _NoTurn from None
        try:
            loop = asyncio.get_running_loop()
            began = loop.time()
            call = loop.run_in_executor(self._threads, self._fetch, namespace, name, LONGEST_LOOKUP)
            try:
                return await asyncio.wait_for(call, LONGEST_LOOKUP)
            except Exception:
                # The request has the same limit, and on a busy machine its error may be seen first.
                if loop.time() - began >= LONGEST_LOOKUP:
                    raise asyncio.TimeoutError from None
                raise
        finally:
            self._free.release()

    def close(self) -> None:
        """Give the threads back; look-ups under way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _from_cache(self, namespace: str, name: str, uid: str, certain: bool = True) -> Owner | None:
        record = None if self._cache is None else self._cache.get(namespace, name)
        if record is None or record.uid != uid:
            return None
        return _owner(record, certain)

    def _fallen_back(self, namespace: str, name: str, uid: str, error: Exception) -> Owner:
        owner = self._from_cache(namespace, name, uid, certain=False)
        decided_by = "nothing" if owner is None else "cache"
        kind, problem = _reason(error)
        self._count(FAILED)
        self._metrics.lookup_failures.labels(kind, decided_by).inc()
        fields = {"namespace": namespace, "notebook": name, "uid": uid, "reason": problem}
        log.warning("notebook could not be looked up", extra={**fields, "decided_by": decided_by})
        self._unsure(namespace, name)
        return owner or UNKNOWN

    def _count(self, result: str) -> None:
        self._metrics.lookups.labels(result).inc()


def _owner(record: Record, certain: bool = True) -> Owner:
    return Owner(record.annotations, is_left_alone(record.labels), certain)


def _reason(error: Exception) -> tuple[str, str]:
    """The metric's label, and the words of the log."""
    if isinstance(error, asyncio.TimeoutError):
        return LOOKUP_TIMEOUT, f"no answer within {LONGEST_LOOKUP:g} s"
    if isinstance(error, _NoTurn):
        return LOOKUP_TIMEOUT, f"other look-ups went on for {LONGEST_QUEUE:g} s"
    words = f"{type(error).__name__}: {error}"
    status = getattr(error, "status", None)
    if status is None:
        return LOOKUP_NO_ANSWER, words
    return (LOOKUP_FORBIDDEN if status in (401, 403) else LOOKUP_REFUSED), words
