"""Looks up the Notebook that owns a StatefulSet: in the watch cache, otherwise by one live request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Protocol

from bitfusion_client.notebook_request import is_left_alone
from bitfusion_client.raw_objects import annotations_of, labels_of, mapping, metadata_of
from notebook_controller_patch.metrics import HIT, MISS, UNKNOWN, AdmissionMetrics

LONGEST_LOOKUP = 0.5  # seconds; the apiserver waits 5 s for the whole review
LEFT_ALONE: Mapping[str, str] = MappingProxyType({})  # a Notebook that wants nothing of ours
THREADS = 8  # live look-ups at once: as many connections are kept

log = logging.getLogger(__name__)

Fetch = Callable[[str, str], Mapping[str, Any]]


class Record(Protocol):
    """What the cache knows of a Notebook."""

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


class Owners:
    """Looks Notebooks up for admission.

    Args:
        cache: Asked first, without waiting.
        fetch: Gets a raw Notebook from the apiserver, ``fetch(namespace, name)``. Called in threads; whatever
            it raises counts as "could not be learnt".
        metrics: Counts hits, misses and failures.
    """

    def __init__(self, cache: NotebookCache, fetch: Fetch, metrics: AdmissionMetrics) -> None:
        self._cache = cache
        self._fetch = fetch
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="notebook-lookup")

    def cached(self, namespace: str, name: str, uid: str) -> Mapping[str, str] | None:
        """The annotations in the cache, None if this very Notebook is not there. Never waits.

        `LEFT_ALONE` itself if the Notebook's label says that it is to be left alone; `look_up` does the same.
        """
        record = self._cache.get(namespace, name)
        if record is None or record.uid != uid:
            return None
        self._count(HIT)
        return LEFT_ALONE if is_left_alone(record.labels) else record.annotations

    async def look_up(self, namespace: str, name: str, uid: str) -> Mapping[str, str] | None:
        """Ask the apiserver; None if the annotations of this very Notebook could not be learnt in 0.5 s."""
        annotations: Mapping[str, str] | None = None
        self._count(MISS)
        began = time.perf_counter()
        try:
            call = asyncio.get_running_loop().run_in_executor(self._threads, self._fetch, namespace, name)
            notebook = await asyncio.wait_for(call, LONGEST_LOOKUP)
            annotations = _annotations(mapping(notebook), uid)
            problem = "" if annotations is not None else "the Notebook of that name is another one"
        except asyncio.TimeoutError:
            problem = f"no answer within {LONGEST_LOOKUP:g} s"
        except Exception as error:  # whatever it is: admission goes on without the Notebook
            problem = f"{type(error).__name__}: {error}"
        self._metrics.lookup_seconds.observe(time.perf_counter() - began)
        if problem:
            self._count(UNKNOWN)
            fields = {"namespace": namespace, "notebook": name, "uid": uid, "reason": problem}
            log.warning("notebook could not be looked up", extra=fields)
        return annotations

    def close(self) -> None:
        """Give the threads back; look-ups under way are not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _count(self, result: str) -> None:
        self._metrics.lookups.labels(result).inc()


def _annotations(notebook: Mapping[str, Any], uid: str) -> Mapping[str, str] | None:
    if metadata_of(notebook).get("uid") != uid:
        return None
    return LEFT_ALONE if is_left_alone(labels_of(notebook)) else annotations_of(notebook)
